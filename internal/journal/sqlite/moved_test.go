//go:build !windows

package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// What is written to a file that nobody finds any more does not count, until it is found again.
func TestFileThatIsTakenAway(t *testing.T) {
	for _, suffix := range []string{"", "-wal", ".lock"} {
		for _, replaced := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "runs.db")
			s := home{path: path}.Open(t).(*Store)
			defer s.Close()
			commit(t, s, began("r1"))
			away := filepath.Join(t.TempDir(), "away")
			if err := os.Rename(path+suffix, away); err != nil {
				t.Fatal(err)
			}
			if replaced {
				if err := os.WriteFile(path+suffix, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s.looked = time.Time{}
			if _, err := s.Commit(t.Context(), []journal.Change{began("r2")}); err == nil || !strings.Contains(err.Error(), path+suffix+" is not the file any more that was opened") {
				t.Errorf("%q, replaced: %v: %v", suffix, replaced, err)
			}
			if _, err := s.Row(t.Context(), "r1"); err == nil {
				t.Errorf("%q, replaced: %v: what was written is confirmed by a file that is not there", suffix, replaced)
			}
			if err := os.Rename(away, path+suffix); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Row(t.Context(), "r2"); err != nil { // it is found again, by which the committer knows
				t.Errorf("%q, replaced: %v: %v", suffix, replaced, err)
			}
			commit(t, s, began("r3"))
		}
	}
}

// By a hard link nobody has a file a second time.
func TestHardLinkIsRefused(t *testing.T) {
	folder := t.TempDir()
	path, link := filepath.Join(folder, "runs.db"), filepath.Join(folder, "link.db")
	s := home{path: path}.Open(t).(*Store)
	commit(t, s, began("r1"))
	if err := os.Link(path, link); err != nil {
		t.Fatal(err)
	}
	if second, err := Open(Config{Path: link, Holder: "the second"}); err == nil {
		second.Close()
		t.Error("a file is open twice")
	} else if !strings.Contains(err.Error(), "by a hard link") {
		t.Error(err)
	}
	commit(t, s, began("r2"))
	s.Close()
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	home{path: path}.Open(t).Close()
}
