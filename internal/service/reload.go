package service

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/host"
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// follow keeps the policy in force what its file says, until stop is called,
// which waits for the end of it. SIGHUP has the file read at once.
func (s *service) follow(ctx context.Context) (stop func()) {
	if !s.from.Watched {
		return func() {}
	}
	return s.cfg.Reload.watchAs(ctx, policyfile.Watched(s.from.Path), s.from.Digest, s.reload, s.log)
}

// watch is watchAs for one file. what it is stands in messages.
func (f *Reload) watch(ctx context.Context, what, path string, digest [32]byte, deliver func(watch.File), log hclog.Logger) (stop func()) {
	return f.watchAs(ctx, watch.Config{Path: path, What: what, MaxSize: policyfile.MaxSize + 1}, digest, deliver, log)
}

// watchAs has deliver called with what the file of cfg has become each time that it has
// changed, and when SIGHUP asks for it, until stop is called, which waits for the
// end of it.
func (f *Reload) watchAs(ctx context.Context, cfg watch.Config, digest [32]byte, deliver func(watch.File), log hclog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	now := make(chan struct{}, 1)
	hangUps := make(chan os.Signal, 1)
	if !host.HangsUp() {
		signal.Notify(hangUps, syscall.SIGHUP)
	}
	cfg.Debounce, cfg.MaxDebounce, cfg.Poll, cfg.Trigger, cfg.Log = f.Debounce, max(10*f.Debounce, time.Second), f.Poll, now, log
	done := make(chan struct{}, 2)
	go func() {
		if err := watch.Watch(ctx, cfg, digest, deliver); err != nil {
			log.Error("a file is not watched", "path", cfg.Path, "error", err)
		}
		done <- struct{}{}
	}()
	go func() {
		pass(ctx, hangUps, now)
		done <- struct{}{}
	}()
	return func() {
		cancel()
		signal.Stop(hangUps)
		<-done
		<-done
	}
}

// pass makes hang-ups wishes to look now.
func pass(ctx context.Context, hangUps <-chan os.Signal, now chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangUps:
		}
		select {
		case now <- struct{}{}:
		default:
		}
	}
}

// reload puts what the file says in force, if it is a policy. If not, the last
// good one stays, and the log says why.
func (s *service) reload(file watch.File) {
	if file.Err != nil {
		s.refuseReload([]string{file.Err.Error()})
		return
	}
	p, findings, err := policyfile.Parse(file)
	if err != nil {
		s.refuseReload(Texts(findings.Errors()))
		return
	}
	s.warn(findings)
	if err := errors.Join(s.cfg.Record.admit(p), s.locks.admit(p)); err != nil {
		s.refuseReload([]string{err.Error()})
		return
	}
	if err := s.keepPolicy(p, file); err != nil {
		s.refuseReload([]string{err.Error()})
		return
	}
	s.warnNobody(p)
	done := s.relay.Reload(p)
	s.reloads.put(p)
	s.log.Info("the policy was reloaded", "file", p.File(), "digest", p.Digest(), "runs", done.Runs, "moved", done.Moved, "waiting", done.Waiting,
		"pinned", done.Pinned, "stranded", done.Stranded, "restarted", done.Restarted, "refused", done.Refused)
	if n := done.Stranded + done.Refused; n > 0 {
		s.log.Warn("runs are stranded, as the new policy does not have the state that they are in: name its successor in renamed, "+
			"or have them begin anew by 'fsm-proxy admin POST /v1/runs/migrate'", "runs", n)
	}
}

func (s *service) refuseReload(errors []string) {
	s.reloads.refuse(errors)
	for _, text := range errors {
		s.log.Error("the policy was not reloaded, the last good one stays in force", "error", text)
	}
}

// Texts are findings as the log has them.
func Texts(findings policy.Findings) []string {
	out := make([]string, len(findings))
	for i, f := range findings {
		out[i] = f.String()
	}
	return out
}

// attempts is what has become of a file since the start.
type attempts struct {
	at                time.Time // of the last one; zero: there was none
	errors            []string  // of the last one; nil: what the file says is in force
	succeeded, failed uint64
}

func (a *attempts) note(errors []string) {
	a.at, a.errors = time.Now(), errors
	if errors == nil {
		a.succeeded++
	} else {
		a.failed++
	}
}

// reloads is what has become of the policy's file, and of the configuration's,
// since the start. What tells of reloads reads it here. It is safe for concurrent
// use.
type reloads struct {
	mu  sync.Mutex // guards what follows
	now reloadState
}

// reloadState is what reloads knows at a moment.
type reloadState struct {
	policy        *policy.Policy // in force
	since         time.Time      // when it was put in force
	attempts                     // to read the policy
	configuration attempts
}

// begin takes the policy to begin with.
func (r *reloads) begin(p *policy.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.policy, r.now.since = p, time.Now()
}

// put takes a policy that was put in force.
func (r *reloads) put(p *policy.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.note(nil)
	r.now.policy, r.now.since = p, r.now.at
}

// refuse takes the errors of a file that is no policy.
func (r *reloads) refuse(errors []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.note(errors)
}

// configured takes what came of a changed configuration file: its errors, or nil.
func (r *reloads) configured(errors []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.configuration.note(errors)
}

func (r *reloads) state() reloadState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// locks keeps the lock in force what its file says, as long as the policy wants
// one. Its methods but take are for one goroutine at a time.
type locks struct {
	given  string // by the user; "": beside the policy
	reload *Reload
	log    hclog.Logger
	ctx    context.Context
	relay  *proxy.Proxy // nil until follow

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
	l.path = policyfile.LockPath(l.given, p.File())
	next, file, err := policyfile.ReadLock(l.path)
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
	err = policyfile.NoLock(p, l.read.Path)
	if p.Pin() == policy.PinRefuse {
		return err
	}
	l.log.Warn(err.Error())
	return nil
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
		l.stop = l.reload.watch(l.ctx, "lock", l.path, l.read.Digest, l.take, l.log)
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
	path := policyfile.LockPath(l.given, p.File())
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
	next, _, err := policyfile.ReadLock(l.path)
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
	next, err := policyfile.ParseLock(file)
	if err != nil {
		l.log.Error("the lock was not reloaded, the last good one stays in force", "error", err)
		return
	}
	l.use(next)
	l.log.Info("the lock was reloaded", "file", file.Path, "tools", len(next.Tools))
}
