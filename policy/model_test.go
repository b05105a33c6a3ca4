package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The model: what a policy says, and a naive reading of it that compiles
// nothing. Its states are named s0, s1, …; -1 is stay.

type modelTarget struct {
	state    int
	terminal bool
}

type modelEdges struct {
	given     [4]bool // success, error, unknown, any
	to        [4]modelTarget
	exclusive bool
}

type modelValue struct {
	none  bool
	split bool
	edges modelEdges            // not split
	cases map[string]modelEdges // split
}

type modelPlace struct {
	names  []string // in order
	values map[string]modelValue
}

type model struct {
	everywhere modelPlace
	states     []modelPlace
	terminal   []bool
	without    []bool
}

func drawTarget(t *rapid.T, states int) modelTarget {
	return modelTarget{
		state:    rapid.IntRange(-1, states-1).Draw(t, "to"),
		terminal: rapid.IntRange(0, 5).Draw(t, "terminal") == 0,
	}
}

func drawEdges(t *rapid.T, states int) modelEdges {
	e := modelEdges{exclusive: rapid.IntRange(0, 4).Draw(t, "exclusive") == 0}
	for i := range e.given {
		if rapid.IntRange(0, 2).Draw(t, "given") == 0 {
			e.given[i], e.to[i] = true, drawTarget(t, states)
		}
	}
	return e
}

func drawValue(t *rapid.T, states int) modelValue {
	switch rapid.IntRange(0, 7).Draw(t, "value") {
	case 0:
		return modelValue{none: true}
	case 1:
		v := modelValue{split: true, cases: map[string]modelEdges{}}
		for _, text := range []string{"x", "y"} {
			if len(v.cases) == 0 || rapid.Bool().Draw(t, text) {
				v.cases[text] = drawEdges(t, states)
			}
		}
		return v
	case 2, 3:
		return modelValue{edges: drawEdges(t, states)}
	}
	return modelValue{}
}

func drawPlace(t *rapid.T, states int) modelPlace {
	p := modelPlace{values: map[string]modelValue{}}
	for range rapid.IntRange(0, 4).Draw(t, "bindings") {
		name := globs(3).Draw(t, "name")
		if _, twice := p.values[name]; !twice {
			p.names = append(p.names, name)
			p.values[name] = drawValue(t, states)
		}
	}
	return p
}

// drawModel draws a policy whose only possible errors are overlaps: its first
// state always has an edge that completes the run.
func drawModel(t *rapid.T) *model {
	n := rapid.IntRange(1, 4).Draw(t, "states")
	m := &model{everywhere: drawPlace(t, n)}
	for i := range n {
		m.terminal = append(m.terminal, i > 0 && rapid.IntRange(0, 3).Draw(t, "terminal state") == 0)
		m.without = append(m.without, rapid.IntRange(0, 4).Draw(t, "without") == 0)
		p := modelPlace{}
		if !m.terminal[i] {
			p = drawPlace(t, n)
		}
		m.states = append(m.states, p)
	}
	m.states[0].names = append(m.states[0].names, "fin")
	fin := modelValue{}
	fin.edges.given[0], fin.edges.to[0] = true, modelTarget{-1, true}
	m.states[0].values["fin"] = fin
	return m
}

// Writing the model as a policy file.

func (t modelTarget) yaml() string {
	to := "stay"
	if t.state >= 0 {
		to = fmt.Sprintf("s%d", t.state)
	}
	if !t.terminal {
		return to
	}
	return "{to: " + to + ", terminal: true}"
}

func (e modelEdges) yaml() string {
	var parts []string
	for i, given := range e.given {
		if given {
			parts = append(parts, edgeKeys[i]+": "+e.to[i].yaml())
		}
	}
	if e.exclusive {
		parts = append(parts, "exclusive: true")
	}
	if parts == nil {
		return "stay"
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (v modelValue) yaml() string {
	switch {
	case v.none:
		return "none"
	case v.split:
		var parts []string
		for _, text := range []string{"y", "x"} {
			if e, ok := v.cases[text]; ok {
				parts = append(parts, text+": "+e.yaml())
			}
		}
		return "{by: c, cases: {" + strings.Join(parts, ", ") + "}}"
	}
	return v.edges.yaml()
}

func (p modelPlace) yaml() string {
	var parts []string
	for _, n := range p.names {
		parts = append(parts, fmt.Sprintf("%q: %s", n, p.values[n].yaml()))
	}
	return "tools: {" + strings.Join(parts, ", ") + "}"
}

func (m *model) yaml() string {
	var out strings.Builder
	fmt.Fprintf(&out, "version: 1\ninitial: s0\neverywhere: {%s}\nstates:\n", m.everywhere.yaml())
	for i, p := range m.states {
		switch {
		case m.terminal[i]:
			fmt.Fprintf(&out, "  s%d: {terminal: true}\n", i)
		default:
			fmt.Fprintf(&out, "  s%d: {everywhere: %v, %s}\n", i, !m.without[i], p.yaml())
		}
	}
	return out.String()
}

// Reading the model.

var shortWords = words("abc", 6)

// language is the short words of a pattern, found by an independent matcher.
var language = func() func(string) map[string]bool {
	known := map[string]map[string]bool{}
	return func(pattern string) map[string]bool {
		if known[pattern] == nil {
			re := regexp.MustCompile(asRegexp(pattern).String())
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
func (m *model) inForce(s int) map[string]modelValue {
	all := map[string]modelValue{}
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

// leads is where an outcome leads from s.
func (m *model) leads(s int, e modelEdges, outcome int) modelTarget {
	t := modelTarget{state: -1}
	switch {
	case e.given[outcome]:
		t = e.to[outcome]
	case e.given[3]:
		t = e.to[3]
	case outcome == 2 && e.given[1]:
		t = e.to[1]
	}
	if t.state < 0 {
		t.state = s
	}
	t.terminal = t.terminal || m.terminal[t.state]
	return t
}

// meaning is a text that is equal for values that do the same in a state.
func (m *model) meaning(s int, v modelValue) string {
	if v.none {
		return "none"
	}
	of := func(e modelEdges) string {
		return fmt.Sprint(m.leads(s, e, 0), m.leads(s, e, 1), m.leads(s, e, 2), e.exclusive)
	}
	if !v.split {
		return of(v.edges)
	}
	out := "by"
	for _, text := range []string{"x", "y"} {
		if e, ok := v.cases[text]; ok {
			out += " " + text + of(e)
		}
	}
	return out
}

func (m *model) overlaps() bool {
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

// lookup finds the value of the most specific pattern.
func (m *model) lookup(s int, name string, listed bool) (value modelValue, found bool) {
	all := m.inForce(s)
	if v, ok := all[name]; ok && !isGlob(name) {
		return v, true
	}
	best := ""
	for p, v := range all {
		if !listed || !isGlob(p) || !asRegexp(p).MatchString(name) {
			continue
		}
		if !found || within(p, best) {
			best, value, found = p, v, true
		}
	}
	return value, found
}

func (m *model) bound(s int, name string, listed bool) bool {
	v, ok := m.lookup(s, name, listed)
	return ok && !v.none
}

// TestAgainstModel compares what is compiled with the naive reading: which
// policies have contradicting globs, and every decision and step of the others.
func TestAgainstModel(t *testing.T) {
	names := append(words("abc", 3), "fin", "a*", "abab")
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		src := m.yaml()
		p, found := Parse("m.yaml", []byte(src))
		if (p == nil) != m.overlaps() {
			t.Fatalf("%s\n%v", src, found)
		}
		if p == nil {
			return
		}
		c := comparison{t, m, p, src}
		for s := range m.states {
			for _, name := range names {
				c.decide(s, name, true)
				c.decide(s, name, false)
			}
			c.visible(s, names)
		}
	})
}

type comparison struct {
	*rapid.T
	m   *model
	p   *Policy
	src string
}

func (c comparison) decide(s int, name string, listed bool) {
	v, found := c.m.lookup(s, name, listed)
	at := Configuration{State: State(s)}
	if !found || v.none {
		got := c.p.Decide(at, Tool, name, listed, nil)
		want := UnknownAction
		for other := range c.m.states {
			if c.m.bound(other, name, listed) {
				want = InvalidTransition
			}
		}
		if got.Allowed || got.Bound || got.Code != want {
			c.Fatalf("%q in s%d: %+v, want %v\n%s", name, s, got, want, c.src)
		}
		return
	}
	if !v.split {
		c.allowed(s, name, listed, "", v.edges)
		return
	}
	for _, text := range []string{"x", "y"} {
		if e, ok := v.cases[text]; ok {
			c.allowed(s, name, listed, text, e)
		} else if got := c.p.Decide(at, Tool, name, listed, argument(text)); got.Allowed || !got.Bound || got.Code != UnknownCase {
			c.Fatalf("%q in s%d, case %s: %+v\n%s", name, s, text, got, c.src)
		}
	}
}

func (c comparison) allowed(s int, name string, listed bool, text string, e modelEdges) {
	at := Configuration{State: State(s)}
	got := c.p.Decide(at, Tool, name, listed, argument(text))
	turn := e.exclusive
	for i, o := range allOutcomes {
		to := c.m.leads(s, e, i)
		turn = turn || to.terminal || to.state != s
		want := Step{From: at, Entered: State(to.state), Terminal: to.terminal, Restarted: to.terminal, To: Configuration{State: State(to.state)}}
		if to.terminal {
			want.To = c.p.Initial()
		}
		want.Changed = to.terminal || to.state != s
		step, err := c.p.Next(at, got.Symbol, o)
		if !listed && err == nil && step != want || listed && (err != nil || step != want) {
			c.Fatalf("%q in s%d on %v: %+v, %v; want %+v\n%s", name, s, o, step, err, want, c.src)
		}
	}
	want := Symbol{Tool, name, text}
	if !got.Allowed || !got.Bound || got.Code != CodeNone || got.Turn != turn || got.Symbol != want {
		c.Fatalf("%q in s%d: %+v, turn %v\n%s", name, s, got, turn, c.src)
	}
}

// visible checks that configurations that do not differ show the same.
func (c comparison) visible(s int, names []string) {
	shown := func(s int) (out []string) {
		for _, n := range names {
			if c.p.Visible(Configuration{State: State(s)}, Tool, n) {
				out = append(out, n)
			}
		}
		return out
	}
	for other := range c.m.states {
		differs := c.p.VisibleDiffers(Configuration{State: State(s)}, Configuration{State: State(other)}, Tool)
		if !differs && !slices.Equal(shown(s), shown(other)) {
			c.Fatalf("s%d and s%d show different tools\n%s", s, other, c.src)
		}
	}
}
