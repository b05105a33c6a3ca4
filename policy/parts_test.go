package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// compileFiles compiles the files of a policy, whose own is policy.yaml.
func compileFiles(files map[string]string) (*Policy, Findings) {
	return CompileParts("policy.yaml", []byte(files["policy.yaml"]), opener(files))
}

// What parts come to is bounded, and each bound is told where it is passed.
func TestPartsHaveLimits(t *testing.T) {
	states := func(n int, each string) string {
		var out strings.Builder
		for i := range n {
			fmt.Fprintf(&out, "  s%d: %s\n", i, each)
		}
		return out.String()
	}
	const head = "version: 1\ninitial: s0\n"
	chain := map[string]string{"policy.yaml": head + "use: {p: f0.yaml}\nstates:\n  s0: {part: p}\n"}
	for i := range 100 {
		chain[fmt.Sprintf("f%d.yaml", i)] = fmt.Sprintf("%suse: {p: f%d.yaml}\nstates:\n  s0: {part: p}\n", head, i+1)
	}
	chain["f100.yaml"] = head + "states:\n  s0: {tools: [x]}\n"
	for name, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"states": {map[string]string{
			"policy.yaml": head + "use: {p: p.yaml}\nstates:\n" + states(101, "{part: p}"),
			"p.yaml":      head + "states:\n" + states(100, "{tools: [x]}"),
		}, "p.yaml:4:3: error: more than 10000 states"},
		"states by way of parts": {map[string]string{
			"policy.yaml": head + "use: {p: p1.yaml}\nstates:\n" + states(10, "{part: p}"),
			"p1.yaml":     head + "use: {p: p2.yaml}\nstates:\n" + states(10, "{part: p}"),
			"p2.yaml":     head + "use: {p: p3.yaml}\nstates:\n" + states(10, "{part: p}"),
			"p3.yaml":     head + "use: {p: p4.yaml}\nstates:\n" + states(10, "{part: p}"),
			"p4.yaml":     head + "states:\n" + states(10, "{tools: [x]}"),
		}, "more than 10000 states"},
		"new names": {map[string]string{
			"policy.yaml": "renamed:\n" + strings.ReplaceAll(states(2100, "end"), "s", "old") + head + "use: {p: p.yaml}\nstates:\n  s0: {tools: {go: {on_any: end}}}\n  end: {part: p}\n",
			"p.yaml":      head + "states:\n" + states(100, "{tools: [x]}"),
		}, "new names of states in all"},
		"files": {chain, "at most 100 files"},
		"size": {map[string]string{
			"policy.yaml": head + "use: {p: p.yaml}\nstates:\n  s0: {part: p}\n",
			"p.yaml":      head + "states:\n  s0: {tools: [x]}\n" + strings.Repeat("#", 1<<20-100),
		}, "more than 1048576 bytes together"},
	} {
		p, found := compileFiles(c.files)
		if errs := found.Errors(); p != nil || len(errs) != 1 || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%s: policy %v, %.600v", name, p != nil, errs)
		}
	}
}

// However many files a policy names, no more are opened than it may have, and none once they are too large.
func TestPartsAreOpenedWithinLimits(t *testing.T) {
	var use strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&use, "  p%d: f%d.yaml\n", i, i)
	}
	src := []byte("version: 1\ninitial: s\nuse:\n" + use.String() + "states: {s: {part: p0}}\n")
	for name, c := range map[string]struct {
		size, most int
		err        error
	}{"missing": {0, 99, errors.New("no such file")}, "small": {100, 99, nil}, "large": {300_000, 4, nil}} {
		opened := 0
		p, found := CompileParts("policy.yaml", src, func(string) ([]byte, error) {
			opened++
			return make([]byte, c.size), c.err
		})
		if p != nil || found.Err() == nil || opened != c.most {
			t.Errorf("%s: %d files were opened, want %d", name, opened, c.most)
		}
	}
}

// Each file counts for the digest, and where one ends and the next begins.
func TestDigestOfParts(t *testing.T) {
	const (
		own  = "version: 1\ninitial: a\nuse: {p: p.yaml, q: q.yaml}\nstates: {a: {part: p}, b: {part: q}}\n"
		part = "version: 1\ninitial: s\nstates: {s: {tools: [x]}}\n"
	)
	seen := map[string]string{}
	for name, files := range map[string]map[string]string{
		"as it is":           {"policy.yaml": own, "p.yaml": part, "q.yaml": part},
		"own":                {"policy.yaml": own + "#", "p.yaml": part, "q.yaml": part},
		"one part":           {"policy.yaml": own, "p.yaml": part + "#", "q.yaml": part},
		"the other part":     {"policy.yaml": own, "p.yaml": part, "q.yaml": part + "#"},
		"another path":       {"policy.yaml": strings.Replace(own, "q: q", "q: r", 1), "p.yaml": part, "r.yaml": part},
		"a line moved":       {"policy.yaml": own, "p.yaml": part + "#\n", "q.yaml": part},
		"a part, alone":      {"policy.yaml": part},
		"a part that stands": {"policy.yaml": "version: 1\ninitial: a\nuse: {p: p.yaml}\nstates: {a: {part: p}}\n", "p.yaml": part},
	} {
		p, found := compileFiles(files)
		if p == nil {
			t.Fatal(name, found)
		}
		if other, twice := seen[p.Digest()]; twice {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[p.Digest()] = name
		if again, _ := compileFiles(files); again.Digest() != p.Digest() {
			t.Errorf("%s has two digests", name)
		}
	}
}

// A verdict names the file that its rule stands in, and a file that stands twice decides in both places.
func TestRulesNameTheFileOfAPart(t *testing.T) {
	p, found := compileFiles(map[string]string{
		"policy.yaml":  "version: 1\ninitial: a\nuse: {p: sub/p.yaml}\neverywhere: {tools: [status]}\nstates:\n  a: {part: p, tools: {leave: b}}\n  b: {part: p}\n",
		"sub/p.yaml":   "version: 1\ninitial: s\nuse: {inner: i.yaml}\neverywhere: {tools: [look]}\nstates:\n  s: {tools: [x]}\n  t: {part: inner}\n",
		"sub/i.yaml":   "version: 1\ninitial: u\nstates:\n  u: {tools: [y]}\n",
		"sub/not.yaml": "",
	})
	if p == nil {
		t.Fatal(found)
	}
	for at, want := range map[string]string{
		"a/s x": "sub/p.yaml:6:15", "b/s x": "sub/p.yaml:6:15", "a/s look": "sub/p.yaml:4:22", "a/s leave": "policy.yaml:6:24",
		"a/t/u y": "sub/i.yaml:4:15", "b/t/u look": "sub/p.yaml:4:22", "b/s status": "policy.yaml:4:22",
	} {
		state, name, _ := strings.Cut(at, " ")
		s, ok := p.StateByName(state)
		if !ok {
			t.Fatalf("no state %s of %v", state, p.States())
		}
		if v := p.Decide(Configuration{State: s}, &Request{Kind: Tool, Name: name}); !v.Allowed || v.Rule.String() != want {
			t.Errorf("%s: %v by %s, want %s", at, v.Allowed, v.Rule, want)
		}
	}
	if s, _ := p.StateByName("b/s"); p.Decide(Configuration{State: s}, &Request{Kind: Tool, Name: "leave"}).Code != InvalidTransition {
		t.Error("what one part state binds is bound in another")
	}
	if got := p.Files(); len(got) != 3 || got[0] != "policy.yaml" {
		t.Errorf("files: %v", got)
	}
}

// Limits of what a part has for its states count in them together, and for each state that it stands for apart; a reload
// that renames that keeps them.
func TestLimitsOfAPart(t *testing.T) {
	files := map[string]string{
		"policy.yaml": "version: 1\ninitial: a\nuse: {p: p.yaml}\nstates:\n  a: {part: p, tools: {go: {at_most: 2, on_any: b}}}\n  b: {part: p}\n",
		"p.yaml":      "version: 1\ninitial: s\nuse: {q: q.yaml}\neverywhere: {tools: {look: {at_most: 3}}}\nstates:\n  s: {tools: {x: {at_most: 1, on_any: t}}}\n  t: {part: q}\n",
		"q.yaml":      "version: 1\ninitial: u\neverywhere: {tools: {deep: {at_most: 4}}}\nstates: {u: }\n",
	}
	p, found := compileFiles(files)
	if p == nil {
		t.Fatal(found)
	}
	key := func(p *Policy, state, name string) string {
		s, ok := p.StateByName(state)
		v := p.Decide(Configuration{State: s}, &Request{Kind: Tool, Name: name})
		if !ok || !v.Allowed || len(v.Alternative.Limits.Own) != 1 {
			t.Fatalf("%s in %s: %+v", name, state, v)
		}
		return v.Alternative.Limits.Own[0].Key
	}
	if key(p, "a/s", "look") != key(p, "a/t/u", "look") || key(p, "a/s", "go") != key(p, "a/t/u", "go") {
		t.Error("what holds in several states is counted in each")
	}
	if key(p, "a/s", "look") == key(p, "b/s", "look") || key(p, "a/s", "x") == key(p, "b/s", "x") {
		t.Error("two states of one part are counted together")
	}
	files["policy.yaml"] = "renamed: {a: first}\n" + strings.NewReplacer("initial: a", "initial: first", "  a:", "  first:").Replace(files["policy.yaml"])
	next, found := compileFiles(files)
	if next == nil {
		t.Fatal(found)
	}
	for _, at := range []string{"s look", "t/u look", "s go", "s x", "t/u deep"} {
		state, name, _ := strings.Cut(at, " ")
		got, ok := next.LimitKey(key(p, "a/"+state, name))
		if want := key(next, "first/"+state, name); !ok || got != want {
			t.Errorf("%s: %q, %v; want %q", at, got, ok, want)
		}
	}
	if got, ok := next.LimitKey(key(p, "b/s", "look")); !ok || got != key(next, "b/s", "look") {
		t.Errorf("what is not renamed: %q, %v", got, ok)
	}
}

// A state that becomes a part, and a part whose state has another name, keep their runs where renamed says so.
func TestReloadIntoAPart(t *testing.T) {
	const part = "version: 1\ninitial: s\nuse: {q: q.yaml}\nstates:\n  s: {tools: {x: t}}\n  t: {part: q}\n"
	with := func(renamed, state string) *Policy {
		p, found := compileFiles(map[string]string{
			"policy.yaml": "version: 1\ninitial: idle\nrenamed: {" + renamed + "}\nuse: {p: p.yaml}\nstates:\n  idle: {tools: {go: " + state + "}}\n  " + state + ": {part: p}\n",
			"p.yaml":      part, "q.yaml": "renamed: {v: u}\nversion: 1\ninitial: u\nstates: {u: {tools: [y]}}\n",
		})
		if p == nil {
			t.Fatal(found)
		}
		return p
	}
	plain := parse(t, "plain.yaml", []byte("version: 1\ninitial: idle\nstates: {idle: {tools: {go: work}}, work: {tools: [x]}, work/t/v: {tools: [x]}}\n"))
	for _, c := range []struct {
		old, next *Policy
		in, want  string
	}{
		{plain, with("", "work"), "work", ""},
		{plain, with("work: work", "work"), "work", "work/s"},
		{plain, with("work: work/t/u", "work"), "work", "work/t/u"},
		{plain, with("", "work"), "work/t/v", "work/t/u"}, // by the part's own file
		{plain, with("work: job", "job"), "work", "job/s"},
		{plain, with("work: job", "job"), "work/t/v", "job/t/u"},
		{with("", "work"), with("work: job", "job"), "work/s", "job/s"},
		{with("", "work"), with("work: job", "job"), "work/t/u", "job/t/u"},
		{with("", "work"), with("", "job"), "work/t/u", ""},
		{with("", "work"), plain, "work/s", ""},
	} {
		s, ok := c.old.StateByName(c.in)
		if !ok {
			t.Fatalf("no state %s", c.in)
		}
		at, ok := c.next.Adopt(c.old, Configuration{State: s})
		if ok != (c.want != "") || ok && c.next.StateName(at.State) != c.want {
			t.Errorf("%s: %v, in %s; want %s", c.in, ok, c.next.StateName(at.State), c.want)
		}
	}
}

// The schema, by which editors check, takes what is read of parts and returns, and refuses what is no such thing.
func TestSchemaOfParts(t *testing.T) {
	s := compiledSchema(t)
	const (
		head = "version: 1\ninitial: a\nuse: {p: p.yaml, q: sub/q.yaml}\nstates:\n"
		part = "version: 1\ninitial: s\nstates: {s: {tools: {x: done}}, done: {terminal: true}}\n"
	)
	for state, ok := range map[string]bool{
		"a: {part: p}":                   true,
		"a: {part: p, exits: b}":         true,
		"a: {part: p, exits: {done: b}}": true,
		`a: {part: p, exits: {"*": {to: b, terminal: true}, x: {return: true}, y: {terminal: true}}}`: true,
		"a: {tools: {x: {on_any: {return: true}}}, signals: {back: {return: true}}}":                  true,
		"a: {part: [p]}":                                false,
		"a: {part: p, exits: [b]}":                      false,
		"a: {part: p, exits: {}}":                       false,
		"a: {part: p, exits: {done: {on_success: b}}}":  false,
		"a: {part: p, exits: {done: {to: b, set: {}}}}": false,
		"a: {tools: {x: {on_any: {return: false}}}}":    false,
		"a: {tools: {x: {return: true}}}":               false,
	} {
		src := []byte(head + "  " + state + "\n  b: {tools: [x]}\n")
		if err := s.Validate(asJSON(t, src)); (err == nil) != ok {
			t.Errorf("%s: %v", state, err)
		}
		if ok {
			continue
		}
		if _, found := compileFiles(map[string]string{"policy.yaml": string(src), "p.yaml": part, "sub/q.yaml": part}); found.Err() == nil {
			t.Errorf("%s is read", state)
		}
	}
}
