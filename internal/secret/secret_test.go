package secret

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// The old and the new token hold one after the other, without a restart.
func TestFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	f, err := Open("bearer-file", path, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Get(); got != "first" {
		t.Errorf("got %q", got)
	}
	write("another")
	f.Rejected()
	if got := f.Get(); got != "another" {
		t.Errorf("after the change: got %q", got)
	}
	write("\n")
	f.Rejected()
	if got := f.Get(); got != "another" {
		t.Errorf("while the file is empty: got %q", got)
	}
}
