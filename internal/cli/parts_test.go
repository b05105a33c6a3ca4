//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

const walkPolicy = `version: 1
initial: entry
on_complete: stop
use: {hall: sub/hall.yaml}
states:
  entry: {tools: {open_door: {on_any: inside}}}
  inside: {part: hall, exits: {out: entry}}
`

const hallPart = `version: 1
name: hall
initial: middle
states:
  middle: {tools: {press_button: {on_any: lit}}}
  lit: {tools: {go_back: {on_any: out}}}
  out: {terminal: true}
`

// writeParts writes a policy with a part into a new folder, which it returns.
func writeParts(t *testing.T, policy, part string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(folder, "sub"), 0o700),
		os.WriteFile(filepath.Join(folder, "walk.yaml"), []byte(policy), 0o600),
		os.WriteFile(filepath.Join(folder, "sub", "hall.yaml"), []byte(part), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func containsAll(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		contains(t, text, want)
	}
}

// saysAll waits until a process has said all that is wanted.
func saysAll(t *testing.T, p *mcptest.Process, wants ...string) {
	t.Helper()
	for _, want := range wants {
		p.Log().Await(t, want)
	}
}

// A run goes into a part; then the part's file alone is changed, is gone, comes back with its state renamed, and the run
// goes on in it and leaves it.
func TestReloadOfAPart(t *testing.T) {
	t.Parallel()
	folder := writeParts(t, walkPolicy, hallPart)
	part := filepath.Join(folder, "sub", "hall.yaml")
	proxy := mcptest.Proxy(t)
	s, p := mcptest.Dial(t, proxy, "run", "--reload-debounce", "5ms", "--policy", folder, "--", proxy, "crossroads")
	s.Initialize()
	show := func(want string) {
		t.Helper()
		if got := tools(t, s); got != want {
			t.Errorf("shown: %q, want %q", got, want)
		}
	}
	s.Tool("open_door", "")
	show("press_button")
	s.Tool("press_button", "")
	show("go_back")

	replace(t, part, strings.Replace(hallPart, "lit: {tools: {", "lit: {tools: {pick_up_key: stay, ", 1))
	awaitChanged(t, s)
	show("go_back pick_up_key")
	p.Log().Await(t, "the policy was reloaded")

	if err := os.Remove(part); err != nil {
		t.Fatal(err)
	}
	p.Log().Await(t, "the last good one stays in force")
	saysAll(t, p, "walk.yaml:4:13: error:", part)
	show("go_back pick_up_key")

	replace(t, part, "renamed: {lit: bright}\n"+strings.ReplaceAll(hallPart, "lit", "bright"))
	awaitChanged(t, s)
	show("go_back")
	s.Tool("go_back", "")
	show("open_door")
}

// Each format of check names the file in which a finding is, and a folder is not checked twice.
func TestCheckNamesTheFileOfAPart(t *testing.T) {
	t.Parallel()
	folder := writeParts(t, walkPolicy, strings.Replace(hallPart, "on_any: out", "on_any: uot", 1))
	part := filepath.Join(folder, "sub", "hall.yaml")
	for format, wants := range map[string][]string{
		"text":   {part + `:6:35: error: on_any: "uot" is no state; did you mean "out"?`, "walk.yaml: 1 error"},
		"github": {"hall.yaml,line=6,col=35,title=unknown-target"},
		"json":   {`"file": "` + part + `"`, `"line": 6`},
		"sarif":  {`sub/hall.yaml"`, `"startLine": 6`},
	} {
		r := command(t, nil, "check", "--format", format, folder)
		containsAll(t, r.stdout, wants...)
		if r.code != 1 || strings.Count(r.stdout, "unknown-target") < 1 || format == "text" && strings.Count(r.stdout, "hall.yaml:6") != 1 {
			t.Errorf("%s: exit code %d\n%s", format, r.code, r.stdout)
		}
	}
	if r := command(t, nil, "check", "--color", "always", folder); !strings.Contains(r.stdout, "lit: {tools: {go_back: {on_any: uot}}}") {
		t.Errorf("no line of the part:\n%s", r.stdout)
	}
}

// What reads a policy reads one with parts, by its file and by its folder.
func TestCommandsTakeParts(t *testing.T) {
	t.Parallel()
	folder := writeParts(t, walkPolicy, hallPart)
	next := writeParts(t, "renamed: {inside: room}\n"+strings.ReplaceAll(walkPolicy, "inside", "room"), strings.Replace(hallPart, "lit: {", "lit: {everywhere: false, ", 1))
	file := filepath.Join(folder, "walk.yaml")
	proxy := mcptest.Proxy(t)
	for _, c := range []struct {
		args  []string
		wants []string
	}{
		{[]string{"check", folder}, []string{"walk.yaml: ok, 3 states"}},
		{[]string{"check", file, "--", proxy, "crossroads"}, []string{"no state binds 4 of the upstream's tools", "ok, 3 states"}},
		{[]string{"check", "--against", file, filepath.Join(next, "walk.yaml")}, []string{"inside/lit: renamed to room/lit", "entry: kept"}},
		{[]string{"render", folder}, []string{"inside/middle", "inside/lit"}},
		{[]string{"render", folder, "--state", "inside/lit"}, []string{"inside/lit"}},
		{[]string{"render", file, "--format", "mermaid"}, []string{`state "inside" as p0 {`}},
		{[]string{"lock", file, "--lock", filepath.Join(folder, "lock"), "--", proxy, "crossroads"}, []string{""}},
	} {
		r := command(t, nil, c.args...)
		containsAll(t, r.stdout+r.stderr, c.wants...)
		if r.code != 0 && !strings.Contains(strings.Join(c.args, " "), "--against") {
			t.Errorf("%v: exit code %d\n%s%s", c.args, r.code, r.stdout, r.stderr)
		}
	}
}

const returningPolicy = `version: 1
initial: entry
on_complete: stop
states:
  entry: {tools: {open_door: {on_any: hall}, press_button: {on_any: helped}}}
  hall: {tools: {press_button: {on_any: helped}, choose_left_path: {on_any: entry}}}
  helped: {tools: {go_back: {on_any: {return: true}}}}
`

// A run returns to where it came from, also after reloads that rename that, and that take it.
func TestReloadOfWhereARunReturnsTo(t *testing.T) {
	t.Parallel()
	path := write(t, "p.yaml", returningPolicy)
	proxy := mcptest.Proxy(t)
	s, _ := mcptest.Dial(t, proxy, "run", "--reload-debounce", "5ms", "--policy", path, "--", proxy, "crossroads")
	s.Initialize()
	steps := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if answer := string(s.Tool(name, "").Raw); strings.Contains(answer, "valid_next") {
				t.Fatalf("%s: %s", name, answer)
			}
		}
	}
	show := func(want string) {
		t.Helper()
		if got := tools(t, s); got != want {
			t.Errorf("shown: %q, want %q", got, want)
		}
	}
	steps("press_button", "go_back")
	show("open_door press_button")
	steps("open_door", "press_button", "go_back")
	show("choose_left_path press_button")
	steps("press_button")
	renamed := "renamed: {hall: lobby}\n" + strings.NewReplacer("hall", "lobby", "go_back: {", "pick_up_key: stay, go_back: {").Replace(returningPolicy)
	replace(t, path, renamed)
	awaitChanged(t, s)
	steps("go_back")
	show("choose_left_path press_button")
	steps("press_button")
	gone := strings.NewReplacer("renamed: {hall: lobby}\n", "", "lobby", "attic", "pick_up_key: stay, ", "").Replace(renamed)
	replace(t, path, gone)
	awaitChanged(t, s)
	steps("go_back")
	show("open_door press_button")
}

// A ConfigMap's folder holds a policy and its part, and both are swapped at once: no policy of one with the part of the
// other is ever in force.
func TestConfigMapOfParts(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	swap := func(version, policy, part string) {
		t.Helper()
		at := filepath.Join(folder, ".."+version)
		for _, err := range []error{
			os.Mkdir(at, 0o700),
			os.WriteFile(filepath.Join(at, "policy.yaml"), []byte(policy), 0o600),
			os.WriteFile(filepath.Join(at, "hall.yaml"), []byte(part), 0o600),
			os.Symlink(".."+version, filepath.Join(folder, "..data_tmp")),
			os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	policy := strings.Replace(walkPolicy, "sub/", "", 1)
	swap("1", policy, hallPart)
	for _, name := range []string{"policy.yaml", "hall.yaml"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	proxy := mcptest.Proxy(t)
	s, p := mcptest.Dial(t, proxy, "run", "--reload-debounce", "5ms", "--policy", folder, "--", proxy, "crossroads")
	s.Initialize()
	s.Tool("open_door", "")
	if got := tools(t, s); got != "press_button" {
		t.Fatalf("shown in the part: %q", got)
	}
	// Neither goes with the other's: the exit has another name.
	rename := strings.NewReplacer("out:", "gone:", "on_any: out", "on_any: gone", "press_button: {", "pick_up_key: stay, press_button: {")
	swap("2", strings.Replace(policy, "{out: entry}", "{gone: entry}", 1), rename.Replace(hallPart))
	awaitChanged(t, s)
	if got := tools(t, s); got != "press_button pick_up_key" && got != "pick_up_key press_button" {
		t.Errorf("shown after the swap: %q", got)
	}
	p.Log().Await(t, "the policy was reloaded")
	if log := p.Log().String(); strings.Contains(log, "not reloaded") {
		t.Error(log)
	}
}
