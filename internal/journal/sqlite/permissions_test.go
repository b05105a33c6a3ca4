//go:build !windows

package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// Nobody else on the machine reads what is in the files.
func TestPermissions(t *testing.T) {
	folder := t.TempDir()
	s, err := Open(Config{Path: filepath.Join(folder, "runs.db"), Holder: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	commit(t, s, began("r1"))
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

// Whichever links lead to a file, one process has it, also where the file is not there yet.
func TestOneProcessWritesThroughLinks(t *testing.T) {
	for _, there := range []bool{true, false} {
		folder := t.TempDir()
		in := func(name string) string { return filepath.Join(folder, name) }
		for _, name := range []string{"a", "b", "real"} {
			if err := os.Mkdir(in(name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for link, to := range map[string]string{"a/runs.db": "../real/runs.db", "b/runs.db": in("b/next.db"), "b/next.db": "../c/runs.db", "c": "real"} {
			if err := os.Symlink(to, in(link)); err != nil {
				t.Fatal(err)
			}
		}
		if there {
			s, err := Open(Config{Path: in("real/runs.db"), Holder: "a test"})
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
		}
		first, err := Open(Config{Path: in("a/runs.db"), Holder: "the first"})
		if err != nil {
			t.Fatal(err)
		}
		commit(t, first, began("r1"))
		for _, path := range []string{"a/runs.db", "b/runs.db", "c/runs.db", "real/runs.db"} {
			var held *journal.Held
			if _, err := Open(Config{Path: in(path), Holder: "the second"}); !errors.As(err, &held) || held.By != "the first" {
				t.Errorf("%v: %s: %v", there, path, err)
			}
		}
		if _, err := os.Stat(in("real/runs.db.lock")); err != nil {
			t.Error(err)
		}
		first.Close()
	}
	loop := filepath.Join(t.TempDir(), "loop.db")
	if err := os.Symlink("loop.db", loop); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Path: loop}); err == nil {
		t.Error("a link to itself is a store")
	}
}
