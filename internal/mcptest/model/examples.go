package model

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// Examples returns the files of policies without errors; folder is that of package policy.
func Examples(t testing.TB, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "testdata/valid/*.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	return append(files, filepath.Join(folder, "../policies/crossroads.yaml"))
}

// Seeds gives a fuzz target the examples, the ready policies, and the policies in which something is found.
func Seeds(f *testing.F, folder string) {
	f.Helper()
	archive, err := txtar.ParseFile(filepath.Join(folder, "report/testdata/findings.txtar"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range archive.Files {
		if strings.HasSuffix(file.Name, ".yaml") {
			f.Add(file.Data)
		}
	}
	ready, err := filepath.Glob(filepath.Join(folder, "../policies/*.yaml"))
	if err != nil || len(ready) == 0 {
		f.Fatalf("no ready policies: %v", err)
	}
	for _, file := range append(Examples(f, folder), ready...) {
		source, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(source)
	}
}
