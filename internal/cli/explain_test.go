package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/golden"
)

// Each file of the archive whose name begins with $ is a command line, and what it prints. Colours are written as \e.
func TestExplainGolden(t *testing.T) {
	const file = "testdata/explain.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for i, f := range archive.Files {
		line, runs := strings.CutPrefix(f.Name, "$ explain ")
		if !runs {
			if err := os.WriteFile(filepath.Join(folder, f.Name), f.Data, 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var args []string
		for j, piece := range strings.Split(line, "'") {
			if j%2 == 1 {
				args = append(args, piece)
			} else {
				args = append(args, strings.Fields(piece)...)
			}
		}
		r := commandIn(t, folder, nil, append([]string{"explain"}, args...)...)
		archive.Files[i].Data = []byte(strings.ReplaceAll(r.stdout+r.stderr, "\x1b", `\e`))
	}
	golden.Compare(t, file, txtar.Format(archive))
}

// What cannot be meant is a wrong command line, and says what can.
func TestExplainWrongly(t *testing.T) {
	folder := layTests(t, map[string]string{"p.yaml": testedPolicy, "other.yaml": testedPolicy,
		"done.yaml": "version: 1\ninitial: a\nstates: {a: {tools: {x: b}, prompts: {p: stay}, signals: {s: b}}, b: {terminal: true}}\n"})
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"p.yaml"}, 2, "got 1 argument; usage: fsm-proxy explain FILE NAME"},
		{[]string{"none.yaml", "edit"}, 1, "no such file"},
		{[]string{".", "edit"}, 2, ". holds 3 policies; name one of them"},
		{[]string{"p.yaml", "edit", "--state", "none"}, 2, `the states are "idle" or "review"`},
		{[]string{"p.yaml", "edit", "--kind", "tools"}, 2, `--kind "tools" is none of tool, resource, prompt, signal`},
		{[]string{"p.yaml", "edit", "--from", "me"}, 2, `--from "me" is none of agent, operator`},
		{[]string{"p.yaml", "edit", "--from", "operator", "--kind", "tool"}, 2, `only a signal has a sender, and "edit" is a tool`},
		{[]string{"p.yaml", "edit", "--format", "xml"}, 2, `--format "xml" is none of text, json`},
		{[]string{"p.yaml", "edit", "--color", "red"}, 2, "--color"},
		{[]string{"p.yaml", "edit", "[1]"}, 2, "the arguments are no JSON object"},
		{[]string{"p.yaml", "edit", "null"}, 2, "the arguments are no JSON object"},
		{[]string{"p.yaml", "edit", `{"path":"a","path":"b"}`}, 2, "no call can have these arguments: duplicate"},
		{[]string{"done.yaml", "s", "{}"}, 2, "a signal has no arguments"},
		{[]string{"p.yaml", "edit", "--registers", "[1]"}, 2, "--registers is no JSON object"},
		{[]string{"p.yaml", "edit", "--registers", `{"a":1}`}, 2, `there is no register "a"`},
		{[]string{"p.yaml", "edit", "--who", `{"subjct":"a"}`}, 2, "--who "},
		{[]string{"p.yaml", "edit", "--who", `{"claims":[1]}`}, 2, "--who: claims is no JSON object"},
		{[]string{"p.yaml", "edit", "--who", `null`}, 2, "--who "},
		{[]string{"p.yaml", "edit", "--now", "noon"}, 2, `--now "noon" is no time`},
		{[]string{"done.yaml", "x", "--state", "b"}, 2, "no run rests in b, which is terminal: it begins anew in a"},
	} {
		r := commandIn(t, folder, nil, append([]string{"explain"}, c.args...)...)
		if r.code != c.code || r.stdout != "" {
			t.Errorf("%q: exit code %d, and it prints %q", c.args, r.code, r.stdout)
		}
		contains(t, r.stderr, c.want)
	}
}

// What is printed for machines has what is printed for people.
func TestExplainJSON(t *testing.T) {
	folder := layTests(t, map[string]string{"p.yaml": testedPolicy})
	r := commandIn(t, folder, nil, "explain", "p.yaml", "edit", "--format", "json")
	var x struct {
		Verdict, Code string
		Steps         []struct {
			What, Rule string
			Steps      []struct{ What, Text, Is, Rule string }
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &x); err != nil || x.Verdict != "refused" || x.Code != "guard_failed" || x.Steps[0].Rule != "p.yaml:6:7" {
		t.Fatalf("%v: %s", err, r.stdout)
	}
	if g := x.Steps[0].Steps[0]; g.What != "when" || g.Text != `args.path != "b"` || g.Is != "error" || g.Rule != "p.yaml:6:20" {
		t.Errorf("%+v", g)
	}
}
