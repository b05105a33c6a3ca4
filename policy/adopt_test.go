package policy

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const adoptOld = `
version: 1
initial: start
states:
  start: {tools: {x: same, secret: stay, "read_*": stay}}
  same: {tools: {x: before}}
  before: {tools: {x: gone}}
  gone: {tools: {x: ends}}
  ends: {tools: {x: done}}
  done: {terminal: true}
`

// adoptNew has everything in another order, so that an index of the old policy
// means another state.
const adoptNew = `
version: 1
initial: first
on_complete: %s
renamed: {before: after, start: same}
states:
  done: {terminal: true}
  ends: {terminal: true}
  after: {tools: {x: ends, "read_*": stay, read_secret: none}}
  same: {tools: {x: after}}
  first: {tools: {x: same, secret: none}}
`

func TestAdopt(t *testing.T) {
	old := parse(t, "old", []byte(adoptOld))
	for _, c := range []struct {
		onComplete, from string
		complete         bool
		to               string // "" is stranded
		toComplete       bool
	}{
		{"restart", "same", false, "same", false},
		{"restart", "same", true, "same", true},
		{"restart", "before", false, "after", false},
		{"restart", "before", true, "after", true},
		{"restart", "start", false, "same", false},
		{"restart", "gone", false, "", false},
		{"restart", "gone", true, "", false},
		{"restart", "done", true, "done", true},
		{"restart", "ends", false, "first", false},
		{"restart", "ends", true, "ends", true},
		{"stop", "ends", false, "ends", true},
		{"stop", "ends", true, "ends", true},
	} {
		p := parse(t, "new", fmt.Appendf(nil, adoptNew, c.onComplete))
		got, ok := p.Adopt(old, Configuration{State: stateOf(t, old, c.from), Complete: c.complete})
		switch {
		case ok != (c.to != ""):
			t.Errorf("%+v: ok %v", c, ok)
		case ok && got != Configuration{State: stateOf(t, p, c.to), Complete: c.toComplete}:
			t.Errorf("%+v: %s, complete %v", c, p.StateName(got.State), got.Complete)
		}
	}
}

func TestAdoptOfNoState(t *testing.T) {
	old := parse(t, "old", []byte(adoptOld))
	for _, s := range []State{-1, 6} {
		if c, ok := old.Adopt(old, Configuration{State: s}); ok {
			t.Errorf("state %d: %+v", s, c)
		}
	}
}

// TestRenamedHasNoChains shows that a chain cannot be written: its middle would
// have to be gone and present.
func TestRenamedHasNoChains(t *testing.T) {
	for renamed, code := range map[string]string{
		"{x: a, y: b}": "", // two states
		"{x: a, y: a}": "", // two that become one
		"{x: y, y: a}": "unknown-target",
		"{x: a, a: b}": "renamed",
		"{a: a}":       "renamed",
		"{x: x}":       "unknown-target",
		"{x: a, x: b}": "duplicate-key",
		"{x: stay}":    "unknown-target",
	} {
		p, found := Parse("p", []byte("{version: 1, initial: a, states: {a: {tools: {t: b}}, b: {tools: {t: a}}}, renamed: "+renamed+"}"))
		errs := found.Errors()
		switch {
		case (p == nil) != (code != ""):
			t.Errorf("%s: %v", renamed, found)
		case code != "" && errs[0].Code != code:
			t.Errorf("%s: %v", renamed, errs)
		}
	}
}

// TestAdoptIsInverse renames every state, and back: each run stands where it
// stood.
func TestAdoptIsInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		there := drawPolicy(t)
		m := renamedSource(there)
		p, found := Parse("renamed.yaml", []byte(m))
		if p == nil {
			t.Fatalf("%v", found)
		}
		back, _ := Parse("back.yaml", []byte("version: 1\ninitial: s0\nrenamed: {"+pairs(there, "r", "s")+"}\nstates: {"+states(there, "s")+"}\n"))
		for s := range there.States() {
			for _, complete := range []bool{true, false} {
				c := Configuration{State: State(s), Complete: complete}
				over, ok := p.Adopt(there, c)
				if !ok || p.StateName(over.State) != "r"+there.StateName(c.State)[1:] {
					t.Fatalf("%+v becomes %+v, %v", c, over, ok)
				}
				if again, ok := back.Adopt(p, over); !ok || again != c {
					t.Fatalf("%+v becomes %+v, %v", c, again, ok)
				}
			}
		}
	})
}

// renamedSource is a policy whose states take the place of p's, in the reverse
// order.
func renamedSource(p *Policy) string {
	return "version: 1\ninitial: r0\nrenamed: {" + pairs(p, "s", "r") + "}\nstates: {" + reversed(states(p, "r")) + "}\n"
}

func pairs(p *Policy, from, to string) string {
	var out []string
	for i := range p.States() {
		out = append(out, fmt.Sprintf("%s%d: %s%d", from, i, to, i))
	}
	return strings.Join(out, ", ")
}

func states(p *Policy, prefix string) string {
	var out []string
	for i := range p.States() {
		out = append(out, fmt.Sprintf("%s%d: ", prefix, i))
	}
	return strings.Join(out, ", ")
}

func reversed(list string) string {
	parts := strings.Split(list, ", ")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ", ")
}

func TestBoundAnywhere(t *testing.T) {
	p := parse(t, "new", fmt.Appendf(nil, adoptNew, "stop"))
	for _, c := range []struct {
		kind   Kind
		name   string
		listed bool
		want   bool
	}{
		{Tool, "x", false, true},
		{Tool, "read_file", true, true},
		{Tool, "read_file", false, false},
		{Tool, "read_secret", true, false},
		{Tool, "secret", true, false},
		{Prompt, "x", true, false},
		{Kind(symbolKinds), "x", true, false},
	} {
		if got := p.BoundAnywhere(c.kind, c.name, c.listed); got != c.want {
			t.Errorf("%v %q, listed %v: %v", c.kind, c.name, c.listed, got)
		}
	}
}

// TestAdoptDoesNotAllocate: a reload asks once for each run, a stranded run with
// each call.
func TestAdoptDoesNotAllocate(t *testing.T) {
	old, p := parse(t, "old", []byte(adoptOld)), parse(t, "new", fmt.Appendf(nil, adoptNew, "stop"))
	c := Configuration{State: stateOf(t, old, "before")}
	n := testing.AllocsPerRun(100, func() {
		_, _ = p.Adopt(old, c)
		_ = p.BoundAnywhere(Tool, "read_secret", true)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
