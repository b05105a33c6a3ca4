//go:build !windows

package sqlite

import (
	"os"
	"path/filepath"
	"testing"
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
