package archtest

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/golden"
)

// The most files that one tools/call enters which steps its run, from HTTP to HTTP, and how
// many of them may be of proxy and proxy/run.
const (
	maxRoute     = 40
	maxRouteCore = 12
)

// Who follows one call reads no more files than this, which docs/architecture.md names: with
// -update they are written there.
func TestRouteOfACall(t *testing.T) {
	t.Parallel()
	route := routeOfACall(t)
	core := slices.DeleteFunc(slices.Clone(route), func(file string) bool { return path.Dir(file) != "proxy" && path.Dir(file) != "proxy/run" })
	if len(route) > maxRoute || len(core) > maxRouteCore {
		t.Errorf("a call enters %d files, %d of them in proxy and proxy/run, of at most %d and %d:\n%s", len(route), len(core), maxRoute, maxRouteCore, strings.Join(route, "\n"))
	}
	page := filepath.Join(root(t), "docs", "architecture.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := bytes.Cut(text, []byte("<!-- route -->\n"))
	_, after, ends := bytes.Cut(rest, []byte("<!-- /route -->\n"))
	if !begins || !ends {
		t.Fatalf("%s has no route", page)
	}
	golden.Compare(t, page, slices.Concat(before, []byte("<!-- route -->\n"+table(route)+"<!-- /route -->\n"), after))
}

// table shows files by their folder.
func table(files []string) string {
	var b strings.Builder
	b.WriteString("| package | files |\n|---|---|\n")
	for len(files) > 0 {
		folder := path.Dir(files[0])
		n := 0
		var names []string
		for ; n < len(files) && path.Dir(files[n]) == folder; n++ {
			names = append(names, path.Base(files[n]))
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", folder, strings.Join(names, ", "))
		files = files[n:]
	}
	return b.String()
}

// routeOfACall returns the files that each of some calls enters, in a binary that counts that.
func routeOfACall(t *testing.T) (route []string) {
	t.Helper()
	binary, folder := filepath.Join(t.TempDir(), "onecall"), t.TempDir()
	execute(t, nil, "go", "build", "-cover", "-covermode=atomic", "-coverpkg=./...", "-o", binary, "./internal/archtest/onecall")
	execute(t, []string{"GOCOVERDIR=" + t.TempDir()}, binary, folder) // which is for what the runtime leaves at the process's end
	for n := range 3 {
		files := entered(t, filepath.Join(folder, strconv.Itoa(n)))
		if route = slices.DeleteFunc(route, func(file string) bool { return !slices.Contains(files, file) }); n == 0 {
			route = files
		}
	}
	return route
}

// entered reads which files of the module a coverage folder tells of.
func entered(t *testing.T, folder string) (files []string) {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	execute(t, nil, "go", "tool", "covdata", "textfmt", "-i="+folder, "-o="+profile)
	text, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		at, counts, _ := strings.Cut(strings.TrimSpace(line), ":")
		file, of := strings.CutPrefix(at, module+"/")
		if of && !strings.HasSuffix(counts, " 0") && !strings.HasPrefix(file, "internal/archtest/") {
			files = append(files, file)
		}
	}
	slices.SortFunc(files, func(a, b string) int {
		return cmp.Or(strings.Compare(path.Dir(a), path.Dir(b)), strings.Compare(a, b))
	})
	return slices.Compact(files)
}

func execute(t *testing.T, environ []string, name string, args ...string) {
	t.Helper()
	command := exec.Command(name, args...)
	command.Dir = root(t)
	command.Env = append(os.Environ(), environ...)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
