package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// threatModel is the section of SECURITY.md.
func threatModel(t *testing.T) string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, filepath.Join("..", "SECURITY.md")), "\n## Threat model\n")
	if !found {
		t.Fatal("SECURITY.md has no threat model")
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	return section
}

var namedTest = regexp.MustCompile("`([a-z0-9/-]+)\\.(Test\\w+)`")

// Every test that the threat model names is in the tree, in one package of that name, and every attack names one.
func TestThreatModelNamesTests(t *testing.T) {
	tests := testsByFolder(t)
	section := threatModel(t)
	for _, m := range namedTest.FindAllStringSubmatch(section, -1) {
		var folders []string
		for folder, names := range tests {
			if strings.HasSuffix("/"+folder, "/"+m[1]) && names[m[2]] {
				folders = append(folders, folder)
			}
		}
		if len(folders) != 1 {
			t.Errorf("%s is in %d packages of that name: %v", m[0], len(folders), folders)
		}
	}
	_, attacks, _ := strings.Cut(section, "| who, and how |")
	for i, row := range strings.Split(attacks, "\n")[2:] {
		if strings.HasPrefix(row, "|") && !namedTest.MatchString(row) {
			t.Errorf("row %d names no test: %s", i+1, row)
		}
	}
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// testsByFolder are the tests of each folder of the repository, whatever system they are for.
func testsByFolder(t *testing.T) map[string]map[string]bool {
	t.Helper()
	out := map[string]map[string]bool{}
	root := mcptest.Root()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "node_modules" || path != root && strings.HasPrefix(e.Name(), ".")):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		folder = filepath.ToSlash(folder)
		if out[folder] == nil {
			out[folder] = map[string]bool{}
		}
		for _, m := range testFunction.FindAllSubmatch(text, -1) {
			out[folder][string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var (
	limitAndDefault = regexp.MustCompile("`--([a-z-]+)` \\(([^)]+)\\)")
	helpDefault     = regexp.MustCompile(`(?m)^\s+--([a-z-]+) .*\(default ([^\s,;)]+)`)
)

// The defaults that the threat model gives are those of run.
func TestThreatModelDefaults(t *testing.T) {
	out, err := exec.Command(mcptest.Proxy(t), "run", "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{}
	for _, m := range helpDefault.FindAllStringSubmatch(string(out), -1) {
		defaults[m[1]] = m[2]
	}
	for _, m := range limitAndDefault.FindAllStringSubmatch(threatModel(t), -1) {
		said, is := m[2], defaults[m[1]]
		if a, err := time.ParseDuration(said); err == nil {
			if b, err := time.ParseDuration(is); err == nil && a == b {
				continue
			}
		}
		if said != is {
			t.Errorf("%s: the default is %q", m[0], is)
		}
	}
}
