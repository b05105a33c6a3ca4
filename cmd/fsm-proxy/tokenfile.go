package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// tokenFile is a secret in a file, which is read again when it has changed, so
// that a token can be replaced while the proxy runs. It is safe for concurrent
// use.
type tokenFile struct {
	path string

	mu      sync.Mutex // guards what follows
	token   string
	changed time.Time // the file's, when it was read
	checked time.Time
}

// tokenFileAge is how long a token is used without a look at its file.
const tokenFileAge = time.Second

// openTokenFile reads the file for the first time; flag is what named it.
func openTokenFile(flag, path string) (*tokenFile, error) {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	f := &tokenFile{path: path}
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
		if info, err := os.Stat(f.path); err == nil && !info.ModTime().Equal(f.changed) {
			_ = f.readLocked()
		}
	}
	return f.token
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
