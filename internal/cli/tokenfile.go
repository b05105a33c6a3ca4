package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// tokenFile is a secret in a file, which is read again when it has changed, so
// that a token can be replaced while the proxy runs. It is safe for concurrent
// use.
type tokenFile struct {
	flag, path string
	log        hclog.Logger

	mu      sync.Mutex // guards what follows
	token   string
	changed time.Time // the file's, when it was read
	checked time.Time
	fault   string // why it could not be read again, as the log says; "": it could
}

// tokenFileAge is how long a token is used without a look at its file.
const tokenFileAge = time.Second

// openTokenFile reads the file for the first time; flag is what named it. The log
// is told what becomes of a changed file.
func openTokenFile(flag, path string, log hclog.Logger) (*tokenFile, error) {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	f := &tokenFile{flag: flag, path: path, log: log}
	if err := f.readLocked(); err != nil {
		return nil, fmt.Errorf("reading --%s %s: %w; give a file that holds the secret alone", flag, path, cause(err))
	}
	return f, nil
}

// get returns the token. While the file cannot be read, or is empty, it is the
// one that was read last.
func (f *tokenFile) get() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checked) > tokenFileAge {
		f.checked = time.Now()
		f.followLocked()
	}
	return f.token
}

// followLocked reads the file if it has changed, and says so. Whoever has emptied or
// removed it must not believe that nobody is let in any more.
func (f *tokenFile) followLocked() {
	old := f.token
	info, err := os.Stat(f.path)
	if err == nil && !info.ModTime().Equal(f.changed) {
		err = f.readLocked()
	}
	fault := ""
	if err != nil {
		fault = cause(err).Error()
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

func (f *tokenFile) readLocked() error {
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return fmt.Errorf("it must hold one line with one word")
	}
	f.token, f.changed = token, info.ModTime()
	return nil
}
