package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

const (
	againstOld = "version: 1\ninitial: open\nstates:\n  open:\n    tools: {work: {on_any: shut}}\n  shut:\n    tools: {back: {on_any: open}}\n"
	againstNew = "version: 1\ninitial: open\nstates:\n  open:\n    tools: {work: {on_any: closed}}\n  closed:\n    tools: {back: {on_any: open}}\n"
)

func TestAgainst(t *testing.T) {
	old, stranding := write(t, "old.yaml", againstOld), write(t, "new.yaml", againstNew)
	renaming := write(t, "new.yaml", againstNew+"renamed: {shut: closed}\n")
	bad := write(t, "bad.yaml", "version: 1\ninitial: open\n")
	warned := write(t, "warned.yaml", againstOld+"  lost:\n    tools: {back: {on_any: open}}\n")
	cases := []struct {
		name string
		args []string
		code int
		says []string
		not  string
	}{
		{"stranded", []string{old, stranding}, 0, []string{old + ": ok, 2 states\n", stranding + ": ok, 2 states\n", "shut: stranded", "closed: new", "1 stranded, 1 new\n"}, "error"},
		{"stranded, strict", []string{old, stranding, "--strict"}, 1, []string{"shut: stranded", stranding + ": error: state \"shut\" of " + old + " is stranded; "}, ""},
		{"renamed", []string{old, renaming, "--strict"}, 0, []string{"open: kept\n", "shut: renamed to closed\n"}, "~"},
		{"the same", []string{old, old, "--strict"}, 0, []string{"2 states kept\n"}, "changed"},
		{"errors in the old", []string{bad, old}, 1, []string{bad + ":1:1: error: no states", old + ": ok"}, "kept"},
		{"errors in the new", []string{old, bad}, 1, []string{bad + ":1:1: error: no states", old + ": ok"}, "kept"},
		{"warnings in the old", []string{warned, old, "--strict"}, 1, []string{"warning: state \"lost\"", "lost: stranded"}, "error: state \"lost\" is not reached"},
		{"warnings in the new", []string{old, warned, "--strict"}, 1, []string{"error: state \"lost\" is not reached"}, "kept"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := command(t, nil, append([]string{"check", "--against"}, c.args...)...)
			if r.code != c.code || r.stderr != "" {
				t.Errorf("exit code %d, want %d; standard error has %q", r.code, c.code, r.stderr)
			}
			for _, want := range c.says {
				contains(t, r.stdout, want)
			}
			if c.not != "" && strings.Contains(r.stdout, c.not) {
				t.Errorf("%q is said in:\n%s", c.not, r.stdout)
			}
		})
	}
}

func TestAgainstMissing(t *testing.T) {
	r := command(t, nil, "check", "--against", "missing.yaml", write(t, "new.yaml", againstNew))
	if r.code != 1 || strings.Contains(r.stdout, "kept") {
		t.Errorf("exit code %d\n%s", r.code, r.stdout)
	}
	oneLine(t, r.stderr, "missing.yaml", "no such file")
}

// The new policy, and it alone, is checked against a live server.
func TestAgainstWithServer(t *testing.T) {
	server := mcptest.Stdio(t, "quiet")
	old, new := write(t, "old.yaml", againstOld), write(t, "new.yaml", plainPolicy)
	r := command(t, nil, append([]string{"check", "--against", old, new, "--"}, server.Command()...)...)
	if r.code != 0 {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	contains(t, r.stdout, "shut: stranded")
	r = command(t, nil, append([]string{"check", "--against", new, old, "--"}, server.Command()...)...)
	if r.code != 1 {
		t.Errorf("exit code %d\n%s", r.code, r.stdout)
	}
	contains(t, r.stdout, `the upstream lists no tool "back"`)
}

func TestAgainstJSON(t *testing.T) {
	old, new := write(t, "old.yaml", againstOld), write(t, "new.yaml", againstNew+"stranded: restart\n")
	got := againstJSON(t, 0, old, new)
	if !got.OK || got.Old.File != old || got.New.File != new || !got.New.OK {
		t.Errorf("%+v", got)
	}
	if got.Stranded != "restart" || got.OnReload != "move" || got.Initial.Old != "open" || len(got.States) != 3 {
		t.Errorf("%+v", got)
	}
	if x := got.States[1]; x.Change != "stranded" || x.Old != "shut" {
		t.Errorf("%+v", x)
	}
	if got := againstJSON(t, 1, old, new, "--strict"); got.OK || !got.New.OK {
		t.Errorf("%+v", got)
	}
	bad := write(t, "bad.yaml", "version: 1\n")
	if got := againstJSON(t, 1, old, bad); got.OK || got.New.OK || got.States != nil {
		t.Errorf("%+v", got)
	}
	if got := againstJSON(t, 1, "missing.yaml", new); got.OK || !strings.Contains(got.Old.Failure, "missing.yaml") {
		t.Errorf("%+v", got)
	}
}

// readComparison is what a reader of the JSON looks for.
type readComparison struct {
	OK       bool
	Old, New struct {
		File, Failure string
		OK            bool
	}
	Initial  struct{ Old, New string }
	OnReload string `json:"on_reload"`
	Stranded string
	States   []struct{ Change, Old, New string }
}

func againstJSON(t *testing.T, code int, args ...string) readComparison {
	t.Helper()
	r := command(t, nil, append([]string{"check", "--format", "json", "--against"}, args...)...)
	if r.code != code || r.stderr != "" {
		t.Errorf("exit code %d, want %d; standard error has %q", r.code, code, r.stderr)
	}
	var out readComparison
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		t.Fatalf("%v in %s", err, r.stdout)
	}
	return out
}
