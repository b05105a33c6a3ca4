// Package model draws small policies and reads them naively, compiling nothing: what
// the policy package decides is compared with it.
package model

import (
	"fmt"
	"regexp"
	"strings"

	"pgregory.net/rapid"
)

// edgeKeys are the keys of the edges, as the language has them.
var edgeKeys = [...]string{"on_success", "on_error", "on_unknown", "on_any"}

func isGlob(pattern string) bool { return strings.Contains(pattern, "*") }

// Words returns every word over the letters up to a length.
func Words(letters string, most int) []string {
	all, last := []string{""}, []string{""}
	for range most {
		var next []string
		for _, w := range last {
			for _, c := range letters {
				next = append(next, w+string(c))
			}
		}
		all, last = append(all, next...), next
	}
	return all
}

// Regexp is a glob as an independent matcher reads it.
func Regexp(glob string) *regexp.Regexp {
	return regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(glob), `\*`, ".*") + "$")
}

// Globs draws patterns over two letters and stars that never touch.
func Globs(most int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		g := rapid.StringOfN(rapid.SampledFrom([]rune("ab*")), 1, most, -1).Draw(t, "glob")
		for strings.Contains(g, "**") {
			g = strings.ReplaceAll(g, "**", "*")
		}
		return g
	})
}

// Target is where an outcome leads: a state, or -1, which stays.
type Target struct {
	State    int
	Terminal bool
}

// Edges are what one symbol says.
type Edges struct {
	given        [4]bool // success, error, unknown, any
	to           [4]Target
	Exclusive    bool
	Irreversible bool
}

// Value is what a name says.
type Value struct {
	None  bool
	Split bool
	Edges Edges            // not split
	Cases map[string]Edges // by text, split
}

// place is what a state, or everywhere, binds.
type place struct {
	names  []string // in order
	values map[string]Value
}

// Model is what a policy says. Its states are named s0, s1, …
type Model struct {
	everywhere place
	states     []place
	terminal   []bool
	without    []bool
}

func drawTarget(t *rapid.T, states int) Target {
	return Target{
		State:    rapid.IntRange(-1, states-1).Draw(t, "to"),
		Terminal: rapid.IntRange(0, 5).Draw(t, "terminal") == 0,
	}
}

func drawEdges(t *rapid.T, states int) Edges {
	e := Edges{Exclusive: rapid.IntRange(0, 4).Draw(t, "exclusive") == 0, Irreversible: rapid.IntRange(0, 4).Draw(t, "irreversible") == 0}
	for i := range e.given {
		if rapid.IntRange(0, 2).Draw(t, "given") == 0 {
			e.given[i], e.to[i] = true, drawTarget(t, states)
		}
	}
	return e
}

func drawValue(t *rapid.T, states int) Value {
	switch rapid.IntRange(0, 7).Draw(t, "value") {
	case 0:
		return Value{None: true}
	case 1:
		v := Value{Split: true, Cases: map[string]Edges{}}
		for _, text := range []string{"x", "y"} {
			if len(v.Cases) == 0 || rapid.Bool().Draw(t, text) {
				v.Cases[text] = drawEdges(t, states)
			}
		}
		return v
	case 2, 3:
		return Value{Edges: drawEdges(t, states)}
	}
	return Value{}
}

func drawPlace(t *rapid.T, states int) place {
	p := place{values: map[string]Value{}}
	for range rapid.IntRange(0, 4).Draw(t, "bindings") {
		name := Globs(3).Draw(t, "name")
		if _, twice := p.values[name]; !twice {
			p.names = append(p.names, name)
			p.values[name] = drawValue(t, states)
		}
	}
	return p
}

// Draw draws a policy whose only possible errors are overlaps: its first
// state always has an edge that completes the run.
func Draw(t *rapid.T) *Model {
	n := rapid.IntRange(1, 4).Draw(t, "states")
	m := &Model{everywhere: drawPlace(t, n)}
	for i := range n {
		m.terminal = append(m.terminal, i > 0 && rapid.IntRange(0, 3).Draw(t, "terminal state") == 0)
		m.without = append(m.without, rapid.IntRange(0, 4).Draw(t, "without") == 0)
		p := place{}
		if !m.terminal[i] {
			p = drawPlace(t, n)
		}
		m.states = append(m.states, p)
	}
	m.states[0].names = append(m.states[0].names, "fin")
	fin := Value{}
	fin.Edges.given[0], fin.Edges.to[0] = true, Target{-1, true}
	m.states[0].values["fin"] = fin
	return m
}

// Writing the model as a policy file.

func (t Target) YAML() string {
	to := "stay"
	if t.State >= 0 {
		to = fmt.Sprintf("s%d", t.State)
	}
	if !t.Terminal {
		return to
	}
	return "{to: " + to + ", terminal: true}"
}

func (e Edges) YAML() string {
	var parts []string
	for i, given := range e.given {
		if given {
			parts = append(parts, edgeKeys[i]+": "+e.to[i].YAML())
		}
	}
	if e.Exclusive {
		parts = append(parts, "exclusive: true")
	}
	if e.Irreversible {
		parts = append(parts, "irreversible: true")
	}
	if parts == nil {
		return "stay"
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (v Value) YAML() string {
	switch {
	case v.None:
		return "none"
	case v.Split:
		var parts []string
		for _, text := range []string{"y", "x"} {
			if e, ok := v.Cases[text]; ok {
				parts = append(parts, text+": "+e.YAML())
			}
		}
		return "{by: c, cases: {" + strings.Join(parts, ", ") + "}}"
	}
	return v.Edges.YAML()
}

func (p place) YAML() string {
	var parts []string
	for _, n := range p.names {
		parts = append(parts, fmt.Sprintf("%q: %s", n, p.values[n].YAML()))
	}
	return "tools: {" + strings.Join(parts, ", ") + "}"
}

// YAML writes the model as a policy file.
func (m *Model) YAML() string {
	var out strings.Builder
	fmt.Fprintf(&out, "version: 1\ninitial: s0\neverywhere: {%s}\nstates:\n", m.everywhere.YAML())
	for i, p := range m.states {
		switch {
		case m.terminal[i]:
			fmt.Fprintf(&out, "  s%d: {terminal: true}\n", i)
		default:
			fmt.Fprintf(&out, "  s%d: {everywhere: %v, %s}\n", i, !m.without[i], p.YAML())
		}
	}
	return out.String()
}

// Reading the model.

var shortWords = Words("abc", 6)

// language is the short words of a pattern, found by an independent matcher.
var language = func() func(string) map[string]bool {
	known := map[string]map[string]bool{}
	return func(pattern string) map[string]bool {
		if known[pattern] == nil {
			re := regexp.MustCompile(Regexp(pattern).String())
			known[pattern] = map[string]bool{}
			for _, w := range shortWords {
				if re.MatchString(w) {
					known[pattern][w] = true
				}
			}
		}
		return known[pattern]
	}
}()

func within(inner, outer string) bool {
	for w := range language(inner) {
		if !language(outer)[w] {
			return false
		}
	}
	return true
}

func meet(a, b string) bool {
	for w := range language(a) {
		if language(b)[w] {
			return true
		}
	}
	return false
}

// inForce is every pattern with a say in a state.
func (m *Model) inForce(s int) map[string]Value {
	all := map[string]Value{}
	if m.terminal[s] {
		return all
	}
	if !m.without[s] {
		for n, v := range m.everywhere.values {
			all[n] = v
		}
	}
	for n, v := range m.states[s].values {
		all[n] = v
	}
	return all
}

// Leads is where an outcome leads from s.
func (m *Model) Leads(s int, e Edges, outcome int) Target {
	t := Target{State: -1}
	switch {
	case e.given[outcome]:
		t = e.to[outcome]
	case e.given[3]:
		t = e.to[3]
	case outcome == 2 && e.given[1]:
		t = e.to[1]
	}
	if t.State < 0 {
		t.State = s
	}
	t.Terminal = t.Terminal || m.terminal[t.State]
	return t
}

// meaning is a text that is equal for values that do the same in a state.
func (m *Model) meaning(s int, v Value) string {
	if v.None {
		return "none"
	}
	of := func(e Edges) string {
		return fmt.Sprint(m.Leads(s, e, 0), m.Leads(s, e, 1), m.Leads(s, e, 2), e.Exclusive, e.Irreversible)
	}
	if !v.Split {
		return of(v.Edges)
	}
	out := "by"
	for _, text := range []string{"x", "y"} {
		if e, ok := v.Cases[text]; ok {
			out += " " + text + of(e)
		}
	}
	return out
}

// Overlaps reports whether some globs contradict each other.
func (m *Model) Overlaps() bool {
	for s := range m.states {
		all := m.inForce(s)
		for a, va := range all {
			for b, vb := range all {
				if a < b && isGlob(a) && isGlob(b) && meet(a, b) && !within(a, b) && !within(b, a) && m.meaning(s, va) != m.meaning(s, vb) {
					return true
				}
			}
		}
	}
	return false
}

// Lookup finds the value of the most specific pattern.
func (m *Model) Lookup(s int, name string, listed bool) (value Value, found bool) {
	all := m.inForce(s)
	if v, ok := all[name]; ok && !isGlob(name) {
		return v, true
	}
	best := ""
	for p, v := range all {
		if !listed || !isGlob(p) || !Regexp(p).MatchString(name) {
			continue
		}
		if !found || within(p, best) {
			best, value, found = p, v, true
		}
	}
	return value, found
}

// Bound reports whether a name is bound in s.
func (m *Model) Bound(s int, name string, listed bool) bool {
	v, ok := m.Lookup(s, name, listed)
	return ok && !v.None
}

// States returns how many states there are.
func (m *Model) States() int { return len(m.states) }
