//go:build unix

package watch

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// readSoon reads, and fails the test if that waits.
func readSoon(t *testing.T, path string) File {
	t.Helper()
	read := make(chan File, 1)
	go func() { read <- Config{Path: path}.Read() }()
	select {
	case f := <-read:
		return f
	case <-time.After(patience):
		t.Fatal("reading waits")
		return File{}
	}
}

// A pipe that nobody writes to is refused, in a folder as well as by its name.
func TestPipeIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	must(t, syscall.Mkfifo(path, 0o600))
	for _, given := range []string{path, dir} {
		if f := readSoon(t, given); f.Err == nil || !strings.Contains(f.Err.Error(), "this is a pipe") {
			t.Errorf("%s: %v", given, f.Err)
		}
	}
}

// The path becomes a pipe after it was looked at.
func TestPipeInTheFilesPlaceDoesNotWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	must(t, syscall.Mkfifo(path, 0o600))
	read := make(chan error, 1)
	go func() { _, err := readFile(path, 100); read <- err }()
	select {
	case err := <-read:
		if err == nil || !strings.Contains(err.Error(), "pipe") {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("opening waits")
	}
}

// A file of 10 GiB without content is refused, and not read.
func TestSparseFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(10<<30))
	if got := readSoon(t, path); got.Err == nil || !strings.Contains(got.Err.Error(), "larger than") {
		t.Errorf("%d bytes, %v", len(got.Content), got.Err)
	}
}
