// Package golden compares what tests see with files that are checked in. Its flag
// -update has the files rewritten instead: review the diff before you commit it.
package golden

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files and transcripts with what was seen")

// Updating reports whether files are to be rewritten.
func Updating() bool { return *update }

// Compare compares got with a file, or rewrites the file.
func Compare(t testing.TB, file string, got []byte) {
	t.Helper()
	if *update {
		Write(t, file, got)
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (run with -update and review the diff); got:\n%s", file, got)
	}
}

// Write rewrites a file.
func Write(t testing.TB, file string, got []byte) {
	t.Helper()
	if err := os.WriteFile(file, got, 0o644); err != nil {
		t.Fatal(err)
	}
}
