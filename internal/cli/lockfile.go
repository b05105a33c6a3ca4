package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// lockPath is where the lock of a policy is, unless it is said to be elsewhere:
// policy.lock.yaml beside policy.yaml.
func lockPath(given, policyFile string) string {
	if given != "" {
		return given
	}
	for _, ext := range []string{".yaml", ".yml"} {
		policyFile = strings.TrimSuffix(policyFile, ext)
	}
	return policyFile + ".lock.yaml"
}

// readLock reads a lock file as watch.Watch would deliver it.
func readLock(path string) (*lock.Lock, watch.File, error) {
	file := watch.Config{Path: path, What: "lock", MaxSize: lock.MaxSize + 1}.Read()
	l, err := parseLock(file)
	return l, file, err
}

// parseLock parses a lock file. Its error has a line for each error in it.
func parseLock(file watch.File) (*lock.Lock, error) {
	if file.Err != nil {
		return nil, file.Err
	}
	l, findings := lock.Parse(file.Path, file.Content)
	if err := findings.Err(); err != nil {
		return nil, fmt.Errorf("the lock has errors:\n%w", err)
	}
	return l, nil
}

// locks keeps the lock in force what its file says, as long as the policy wants
// one. Its methods but take are for one goroutine at a time.
type locks struct {
	given string // by --lock
	flags *reloadFlags
	log   hclog.Logger
	ctx   context.Context
	relay *proxy.Proxy // nil until follow

	path string // of the file that is in force, or awaited; "": none is wanted yet
	read watch.File
	stop func()      // ends the watching of path
	have atomic.Bool // one is in force
}

// first reads the lock for the policy to begin with, nil where it wants none, or
// can do without.
func (l *locks) first(p *policy.Policy) (*lock.Lock, error) {
	if p.Pin() == policy.PinOff {
		return nil, nil
	}
	l.path = lockPath(l.given, p.File())
	next, file, err := readLock(l.path)
	l.read = file
	if err != nil {
		return nil, l.missing(p, err)
	}
	l.have.Store(true)
	return next, nil
}

// missing is what it means that there is no lock at first: with `pin: warn` nothing
// but a warning, unless there is one that cannot be read.
func (l *locks) missing(p *policy.Policy, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = noLock(p, l.read.Path)
	if p.Pin() == policy.PinRefuse {
		return err
	}
	l.log.Warn(err.Error())
	return nil
}

// noLock says that a policy wants a lock which is not there.
func noLock(p *policy.Policy, path string) error {
	return fmt.Errorf("there is no lock file %s, which 'pin: %s' compares tools with; write it by 'fsm-proxy lock %s' and the server, or name it by --lock",
		path, p.Pin(), shellLine([]string{p.File()}))
}

// follow keeps the lock of a relay up to date until stop is called, which waits for
// the end of it.
func (l *locks) follow(ctx context.Context, relay *proxy.Proxy) (stop func()) {
	l.ctx, l.relay = ctx, relay
	l.watch()
	return l.rest
}

func (l *locks) watch() {
	if l.path != "" {
		l.stop = l.flags.watch(l.ctx, "lock", l.path, l.read.Digest, l.take, l.log)
	}
}

func (l *locks) rest() {
	if l.stop != nil {
		l.stop()
		l.stop = nil
	}
}

// admit reads the lock that a policy wants, before that comes in force. Its error
// says that it cannot.
func (l *locks) admit(p *policy.Policy) error {
	path := lockPath(l.given, p.File())
	switch {
	case p.Pin() == policy.PinOff:
		return nil
	case path == l.path:
		if err := l.refresh(); err != nil && !l.have.Load() && p.Pin() == policy.PinRefuse {
			return l.missing(p, err)
		}
		return nil
	}
	before := l.path
	l.rest()
	next, err := l.first(p)
	switch {
	case err != nil:
		l.path = before
	case next != nil:
		l.relay.SetLock(next)
	}
	l.watch()
	return err
}

// refresh takes what the file says now, if that is a lock: a policy that has come
// with another one is not to be in force with the old one. What is wrong with it is
// told when it is noticed.
func (l *locks) refresh() error {
	next, _, err := readLock(l.path)
	if err == nil {
		l.use(next)
	}
	return err
}

func (l *locks) use(next *lock.Lock) {
	l.have.Store(true)
	l.relay.SetLock(next)
}

// take puts in force what the file has become, if it is a lock. If not, the last
// good one stays.
func (l *locks) take(file watch.File) {
	next, err := parseLock(file)
	if err != nil {
		l.log.Error("the lock was not reloaded, the last good one stays in force", "error", err)
		return
	}
	l.use(next)
	l.log.Info("the lock was reloaded", "file", file.Path, "tools", len(next.Tools))
}

// writeLock writes a lock file whole, or not at all: whoever follows it never sees
// half of it.
func writeLock(path string, text []byte) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), ".lock-*")
	if err == nil {
		defer os.Remove(temp.Name())
		_, err = bytes.NewReader(text).WriteTo(temp)
		err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w; choose another --lock", absolute(path), cause(err))
	}
	return nil
}
