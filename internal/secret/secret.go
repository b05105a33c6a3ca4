// Package secret reads secrets from files: tokens that clients must send, and those
// that go to the wrapped server.
package secret

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/host"
)

// File is a secret in a file, which is read again when it has changed, so that a
// token can be replaced while the proxy runs. It is safe for concurrent use.
type File struct {
	flag, path string
	log        hclog.Logger

	mu      sync.Mutex // guards what follows
	token   string
	read    fs.FileInfo // of the file, when it was read
	checked time.Time
	fault   string // why it could not be read again, as the log says; "": it could
}

// maxAge is how long a token is used without a look at its file.
const maxAge = time.Second

// Open reads the file for the first time; flag is what named it. The log is told
// what becomes of a changed file.
func Open(flag, path string, log hclog.Logger) (*File, error) {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	f := &File{flag: flag, path: path, log: log, checked: time.Now()}
	if err := f.readLocked(); err != nil {
		return nil, fmt.Errorf("reading --%s %s: %w; give a file that holds the secret alone", flag, path, host.Cause(err))
	}
	return f, nil
}

// Get returns the token. While the file cannot be read, or is empty, it is the
// one that was read last.
func (f *File) Get() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checked) > maxAge {
		f.checked = time.Now()
		f.followLocked()
	}
	return f.token
}

// Rejected has the next Get look at the file, however short a time ago it did.
func (f *File) Rejected() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checked = time.Time{}
}

// followLocked reads the file if it has changed, and says so. Whoever has emptied or
// removed it must not believe that nobody is let in any more.
func (f *File) followLocked() {
	old := f.token
	info, err := os.Stat(f.path)
	if err == nil && (!info.ModTime().Equal(f.read.ModTime()) || info.Size() != f.read.Size()) {
		err = f.readLocked()
	}
	fault := ""
	if err != nil {
		fault = host.Cause(err).Error()
	}
	switch {
	case fault != "" && fault != f.fault:
		f.log.Error("a token file cannot be read: the last token stays in force; write another into it to have the last one refused",
			"flag", "--"+f.flag, "file", f.path, "error", fault)
	case f.token != old:
		f.log.Info("a token file was read again: the new token is in force, and the old one no longer", "flag", "--"+f.flag, "file", f.path)
	}
	f.fault = fault
}

func (f *File) readLocked() error {
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\r\n\x00") {
		return errors.New("it must hold one token and nothing else")
	}
	f.token, f.read = token, info
	return nil
}
