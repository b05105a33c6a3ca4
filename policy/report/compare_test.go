package report

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/golden"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/model"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// TestCompareText compares every pair of compare.txtar and what is said of it
// with the file that follows the pair.
func TestCompareText(t *testing.T) {
	const file = "testdata/compare.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := &txtar.Archive{Comment: archive.Comment}
	var old *policy.Policy
	for _, f := range archive.Files {
		folder, name := path.Split(f.Name)
		switch name {
		case "old.yaml":
			old = parse(t, name, f.Data)
			out.Files = append(out.Files, f)
		case "new.yaml":
			text := CompareText(old, parse(t, name, f.Data))
			out.Files = append(out.Files, f, txtar.File{Name: folder + "want", Data: []byte(text)})
		}
	}
	golden.Compare(t, file, txtar.Format(out))
}

// TestCompareJSON is the form that machines read.
func TestCompareJSON(t *testing.T) {
	old := parse(t, "old", []byte("{version: 1, initial: a, states: {a: {tools: {x: b}}, b: {tools: {y: a}}}}"))
	new := parse(t, "new", []byte("{version: 1, initial: a, states: {a: {tools: {x: {by: c, cases: {d: stay}}}}}}"))
	got, err := json.Marshal(Compare(old, new))
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"change":"kept","old":"a","new":"a","names":[{"difference":"altered","kind":"tool","pattern":"x",` +
		`"was":{"pattern":"x","glob":false},"now":{"pattern":"x","glob":false,"by":"c"},` +
		`"edges":[{"outcomes":["success"],"was":{"to":"b"}},{"outcomes":["error","unknown"],"was":{"to":"a","stays":true}},` +
		`{"by":"c","case":"d","outcomes":["success","error","unknown"],"now":{"to":"a","stays":true}}]}]},` +
		`{"change":"stranded","old":"b","names":[{"difference":"lost","kind":"tool","pattern":"y",` +
		`"was":{"pattern":"y","glob":false},"edges":[{"outcomes":["success"],"was":{"to":"a"}},{"outcomes":["error","unknown"],"was":{"to":"b","stays":true}}]}]}]`
	if string(got) != want {
		t.Errorf("got %s", got)
	}
}

// TestCompareWithItself finds nothing.
func TestCompareWithItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		for s, x := range Compare(p, p) {
			if !x.Same() || x.Old != p.StateName(policy.State(s)) || x.New != x.Old {
				t.Fatalf("%+v", x)
			}
		}
	})
}

// drawPolicy draws a policy without errors.
func drawPolicy(t *rapid.T) *policy.Policy {
	return rapid.Custom(func(t *rapid.T) *policy.Policy {
		p, _ := policy.Parse("m.yaml", []byte(model.Draw(t).YAML()))
		return p
	}).Filter(func(p *policy.Policy) bool { return p != nil }).Draw(t, "policy")
}

// TestCompareOverlooksNothing draws two policies that have states in common: of
// every name that is decided or stepped otherwise, a pattern that matches it is
// reported, and no exact name that is not.
func TestCompareOverlooksNothing(t *testing.T) {
	names := append(model.Words("abc", 3), "fin", "abab")
	rapid.Check(t, func(t *rapid.T) {
		old, new := drawPolicy(t), drawPolicy(t)
		for _, x := range Compare(old, new) {
			if x.Change != StateKept {
				continue
			}
			s, _ := old.StateByName(x.Old)
			after, _ := new.StateByName(x.New)
			for _, name := range names {
				same := behaviour(old, s, name) == behaviour(new, after, name)
				said := slices.ContainsFunc(x.Names, func(n NameChange) bool { return model.Regexp(n.Pattern).MatchString(name) })
				if !same && !said {
					t.Fatalf("%s: %q differs\n%s\n%s", x.Old, name, behaviour(old, s, name), behaviour(new, after, name))
				}
				alone := slices.ContainsFunc(x.Names, func(n NameChange) bool { return n.Pattern == name })
				if alone && same {
					t.Fatalf("%s: %q does not differ: %+v", x.Old, name, x.Names)
				}
			}
		}
	})
}

// behaviour is a text that is equal where a name, listed or not, with every
// argument, is decided and stepped alike.
func behaviour(p *policy.Policy, s policy.State, name string) string {
	var out strings.Builder
	at := policy.Configuration{State: s}
	for _, listed := range []bool{true, false} {
		for _, text := range []string{"x", "y", "z"} {
			v := p.Decide(at, &policy.Request{Kind: policy.Tool, Name: name, Listed: listed, Args: argument(text)})
			if !v.Allowed {
				out.WriteString("refused\n")
				continue
			}
			out.WriteString(stepsOf(p, at, v.Symbol) + "\n")
		}
	}
	return out.String()
}

func stepsOf(p *policy.Policy, c policy.Configuration, s policy.Symbol) string {
	b := p.Binding(c, s.Kind, s.Name, true)
	if b == nil {
		return "bound only while it is not listed"
	}
	var leads []string
	for _, o := range policy.AllOutcomes {
		leads = append(leads, leadOf(p, &b.Case(s.Case).Alternatives[s.Alternative], c.State, o).String())
	}
	return strings.Join(leads, ", ")
}

// argument is every argument, with a text.
func argument(text string) policy.Lookup {
	return func([]string) policy.Argument { return policy.Text(text) }
}

// TestCompareOverlooksNoCase draws two splits of one tool: of every argument that is
// decided or stepped otherwise a case is reported that it lies in.
func TestCompareOverlooksNoCase(t *testing.T) {
	var arguments []policy.Argument
	for _, w := range model.Words("abc", 4) {
		arguments = append(arguments, policy.Text(w))
	}
	for _, literal := range []string{"1", "100", "true", "false"} {
		arguments = append(arguments, policy.Text(literal), policy.Literal(literal))
	}
	draw := func(t *rapid.T, label string) *policy.Policy {
		return rapid.Custom(func(t *rapid.T) *policy.Policy {
			keys := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{`a`, `ab`, `""`, `"*"`, `"a*"`, `"*b"`, `"a*b"`, `"ab*"`, `"*a*"`, `1`, `"1"`, `1e2`, `100`, `true`, `"true"`}), 1, 6, rapid.ID[string]).Draw(t, "keys")
			for i, key := range keys {
				keys[i] = key + ": " + rapid.SampledFrom([]string{"stay", "stay", "b", "none", "{exclusive: true}"}).Draw(t, "value")
			}
			p, _ := policy.Parse("p.yaml", []byte("version: 1\ninitial: a\nstates: {a: {tools: {x: {by: c.d, cases: {"+strings.Join(keys, ", ")+"}}}}, b: {}}\n"))
			return p
		}).Filter(func(p *policy.Policy) bool { return p != nil }).Draw(t, label)
	}
	does := func(p *policy.Policy, a policy.Argument) string {
		v := p.Decide(p.Initial(), &policy.Request{Kind: policy.Tool, Name: "x", Listed: true, Args: policy.Lookup(func([]string) policy.Argument { return a })})
		if !v.Allowed {
			return "refused"
		}
		return stepsOf(p, p.Initial(), v.Symbol)
	}
	rapid.Check(t, func(t *rapid.T) {
		old, new := draw(t, "old"), draw(t, "new")
		change := Compare(old, new)[0]
		var edges []EdgeChange
		for _, n := range change.Names {
			edges = append(edges, n.Edges...)
		}
		for _, a := range arguments {
			said := slices.ContainsFunc(edges, func(e EdgeChange) bool {
				glob := strings.Contains(e.Case, "*")
				return e.value == a || glob && a.Kind() == policy.TextValue && model.Regexp(e.Case).MatchString(a.String())
			})
			if does(old, a) != does(new, a) && !said {
				t.Fatalf("%s %q differs, and nothing is said of it:\n%s", a.Kind(), a, CompareText(old, new))
			}
		}
		if !Compare(old, old)[0].Same() {
			t.Fatalf("it differs from itself:\n%s", CompareText(old, old))
		}
	})
}

// A case that the new policy allows nowhere is lost to runs that strand, though
// the name is not.
func TestCompareTellsOfCasesLostToStrandedRuns(t *testing.T) {
	old, found := policy.Parse("old", []byte("{version: 1, initial: a, states: {a: {tools: {go: b}}, b: {tools: {run: {by: how, cases: {dry: stay, wet: a}}, ask: , say: }}}}"))
	if old == nil {
		t.Fatal(found)
	}
	new, found := policy.Parse("new", []byte("{version: 1, initial: a, states: {a: {tools: {run: {by: how, cases: {dry: stay}}, ask: {by: what, cases: {x: stay}}, say: }}}}"))
	if new == nil {
		t.Fatal(found)
	}
	changes := Compare(old, new)
	b := changes[1]
	if b.Change != StateStranded || len(b.Names) != 2 {
		t.Fatalf("%+v", b)
	}
	run, ask := b.Names[0], b.Names[1]
	if run.Pattern != "run" || run.Difference != Altered || len(run.Edges) == 0 || run.Edges[0].Case != "wet" {
		t.Errorf("%+v", run)
	}
	if ask.Pattern != "ask" || ask.Difference != Altered || len(ask.Edges) == 0 {
		t.Errorf("%+v", ask)
	}
}
