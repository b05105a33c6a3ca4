package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/model"
)

// The files of a policy with parts, as they are drawn, and read naively: a run is somewhere in
// a tree of files, and what it may do is looked up from there outwards.
type (
	partsModel struct{ files []*fileModel } // the policy's own first; a file's parts come after it
	fileModel  struct {
		everywhere []boundModel
		states     []stateModel
	}
	stateModel struct {
		name              string
		binds             []boundModel
		terminal, without bool
		part              int // the file that stands for it; 0: none
		exits             map[string]leadModel
	}
	boundModel struct {
		pattern string
		none    bool
		leadModel
	}
	leadModel struct {
		to       string // "": no state
		terminal bool
		returns  bool
	}
)

// place is where a run is: the state in each file, from the policy's own inwards.
type placeModel []int

func drawParts(t *rapid.T) *partsModel {
	m := &partsModel{}
	n := rapid.IntRange(2, 4).Draw(t, "files")
	for i := range n {
		m.files = append(m.files, drawFile(t, i, n))
	}
	return m
}

func drawFile(t *rapid.T, i, n int) *fileModel {
	f := &fileModel{}
	names := []string{"s", "t", "u", "end"}
	for j, name := range names {
		st := stateModel{name: name, terminal: j > 1 && rapid.Bool().Draw(t, "terminal"), without: rapid.IntRange(0, 4).Draw(t, "without") == 0}
		if !st.terminal {
			if i+1 < n && (i == 0 && j == 0 || rapid.IntRange(0, 2).Draw(t, "is part") == 0) {
				st.part = rapid.IntRange(i+1, n-1).Draw(t, "part")
				st.exits = map[string]leadModel{"*": drawExit(t, names)}
				if rapid.Bool().Draw(t, "named") {
					st.exits[rapid.SampledFrom(names).Draw(t, "exit")] = drawExit(t, names)
				}
			}
			st.binds = drawBounds(t, names)
		}
		f.states = append(f.states, st)
	}
	if i == 0 { // so that a declared terminal is one
		f.states[0].binds = append(f.states[0].binds, boundModel{pattern: "fin", leadModel: leadModel{terminal: true}})
	}
	f.everywhere = drawBounds(t, names)
	return f
}

func drawExit(t *rapid.T, names []string) leadModel {
	l := leadModel{to: rapid.SampledFrom(append([]string{""}, names...)).Draw(t, "exit to")}
	l.terminal = l.to == "" || rapid.IntRange(0, 2).Draw(t, "exit terminal") == 0
	return l
}

func drawBounds(t *rapid.T, names []string) (out []boundModel) {
	for range rapid.IntRange(0, 3).Draw(t, "bindings") {
		b := boundModel{pattern: model.Globs(2).Draw(t, "pattern"), none: rapid.IntRange(0, 5).Draw(t, "none") == 0}
		if slices.ContainsFunc(out, func(o boundModel) bool { return o.pattern == b.pattern }) {
			continue
		}
		if !b.none {
			b.to = rapid.SampledFrom(append([]string{"", ""}, names...)).Draw(t, "to")
			b.terminal = rapid.IntRange(0, 3).Draw(t, "edge terminal") == 0
		}
		out = append(out, b)
	}
	return out
}

// Writing the files.

func (l leadModel) YAML() string {
	switch {
	case l.returns:
		return "{return: true}"
	case l.terminal && l.to == "":
		return "{terminal: true}"
	case l.terminal:
		return "{to: " + l.to + ", terminal: true}"
	case l.to == "":
		return "stay"
	}
	return l.to
}

func boundsYAML(bs []boundModel) string {
	var all []string
	for _, b := range bs {
		value := "{on_any: " + b.YAML() + "}"
		if b.none {
			value = "none"
		}
		all = append(all, fmt.Sprintf("%q: %s", b.pattern, value))
	}
	return "tools: {" + strings.Join(all, ", ") + "}"
}

func (f *fileModel) YAML() string {
	var out strings.Builder
	out.WriteString("version: 1\ninitial: s\nuse: {p1: d/1.yaml, p2: d/2.yaml, p3: d/3.yaml}\n")
	fmt.Fprintf(&out, "everywhere: {%s}\nstates:\n", boundsYAML(f.everywhere))
	for _, st := range f.states {
		fmt.Fprintf(&out, "  %s: {everywhere: %v, ", st.name, !st.without)
		if st.part > 0 {
			var exits []string
			for name, l := range st.exits {
				exits = append(exits, fmt.Sprintf("%q: %s", name, l.YAML()))
			}
			fmt.Fprintf(&out, "part: p%d, exits: {%s}, ", st.part, strings.Join(exits, ", "))
		}
		if st.terminal {
			out.WriteString("terminal: true}\n")
		} else {
			fmt.Fprintf(&out, "%s}\n", boundsYAML(st.binds))
		}
	}
	return out.String()
}

// sources are the files by their paths, with what each uses, and nothing else.
func (m *partsModel) sources() map[string]string {
	out := map[string]string{}
	for i, f := range m.files {
		var uses []string
		for j := i + 1; j < len(m.files); j++ {
			if slices.ContainsFunc(f.states, func(s stateModel) bool { return s.part == j }) {
				folder := ""
				if i == 0 {
					folder = "d/"
				}
				uses = append(uses, fmt.Sprintf("p%d: %s%d.yaml", j, folder, j))
			}
		}
		path := fmt.Sprintf("d/%d.yaml", i)
		if i == 0 {
			path = "policy.yaml"
		}
		out[path] = strings.Replace(f.YAML(), "{p1: d/1.yaml, p2: d/2.yaml, p3: d/3.yaml}", "{"+strings.Join(uses, ", ")+"}", 1)
	}
	return out
}

// Reading them naively.

// file is the file that a place is in at a depth.
func (m *partsModel) file(at placeModel, depth int) *fileModel {
	f := m.files[0]
	for d := range depth {
		f = m.files[f.states[at[d]].part]
	}
	return f
}

func (m *partsModel) state(at placeModel, depth int) *stateModel {
	return &m.file(at, depth).states[at[depth]]
}

func (m *partsModel) name(at placeModel) string {
	var names []string
	for d := range at {
		names = append(names, m.state(at, d).name)
	}
	return strings.Join(names, "/")
}

// enter is where an edge to a state of the file at a depth leads.
func (m *partsModel) enter(at placeModel, depth int, name string) placeModel {
	to := append(slices.Clone(at[:depth]), slices.IndexFunc(m.file(at, depth).states, func(s stateModel) bool { return s.name == name }))
	for m.state(to, len(to)-1).part > 0 {
		to = append(to, 0) // s is initial in every file
	}
	return to
}

// said is a binding, with the depth of the file that has it.
type said struct {
	boundModel
	depth int
}

// lookup finds what is bound for a listed name, the nearest first.
func (m *partsModel) lookup(at placeModel, name string) (found said, ok bool) {
	var near []said
	for d := len(at) - 1; d >= 0; d-- {
		st := m.state(at, d)
		for _, b := range st.binds {
			near = append(near, said{b, d})
		}
		if !st.without {
			for _, b := range m.file(at, d).everywhere {
				near = append(near, said{b, d})
			}
		}
	}
	for _, s := range near {
		if s.pattern == name {
			return s, true
		}
	}
	for _, s := range near {
		if !strings.Contains(s.pattern, "*") || !model.Regexp(s.pattern).MatchString(name) {
			continue
		}
		// Within another means: the other matches it, as if it were a name.
		if !ok || s.pattern != found.pattern && model.Regexp(found.pattern).MatchString(s.pattern) {
			found, ok = s, true
		}
	}
	return found, ok
}

// walkModel is a run: where it is, and for each state and part, by its name, from where an edge that does not return
// has entered it last.
type walkModel struct {
	at   placeModel
	from map[string]placeModel
	back int // how often it returned
}

// step takes a lead of the file at a depth.
func (w *walkModel) step(m *partsModel, depth int, l leadModel) (terminal bool) {
	to, terminal, of := m.leads(w.at, depth, l)
	switch {
	case terminal:
		*w = walkModel{m.enter(nil, 0, "s"), map[string]placeModel{}, w.back}
		return true
	case of >= 0:
		w.at = w.from[m.name(w.at[:of+1])]
		w.back++
		return false
	}
	for d := range to {
		if entered := m.name(to[:d+1]); d >= len(w.at) || m.name(w.at[:d+1]) != entered {
			w.from[entered] = w.at
		}
	}
	w.at = to
	return false
}

// leads is where a lead of the file at a depth goes, and whether the run completes. If it returns, of is the depth of the
// state, or part, that it returns from, and else negative.
func (m *partsModel) leads(at placeModel, depth int, l leadModel) (to placeModel, terminal bool, of int) {
	switch {
	case l.returns:
		return nil, false, depth
	case l.to == "" && !l.terminal:
		return at, false, -1
	}
	name := l.to
	if name == "" {
		name = m.state(at, depth).name
	}
	file := m.file(at, depth)
	st := file.states[slices.IndexFunc(file.states, func(s stateModel) bool { return s.name == name })]
	switch {
	case depth > 0 && (l.terminal || st.terminal):
		exits := m.state(at, depth-1).exits
		exit, ok := exits[name]
		if !ok {
			exit = exits["*"]
		}
		return m.leads(at, depth-1, exit)
	case l.to == "":
		return at, true, -1
	}
	return m.enter(at, depth, name), l.terminal || st.terminal, -1
}

// places are all places in which a run can rest.
func (m *partsModel) places(in placeModel) (all []placeModel) {
	for i := range m.file(in, len(in)).states {
		at := append(slices.Clone(in), i)
		switch st := m.state(at, len(in)); {
		case st.part > 0:
			all = append(all, m.places(at)...)
		case !st.terminal || len(in) == 0:
			all = append(all, at)
		}
	}
	return all
}

// opener opens files that are in memory.
func opener(files map[string]string) Opener {
	return func(path string) ([]byte, error) {
		src, ok := files[path]
		if !ok {
			return nil, fmt.Errorf("there is no %s", path)
		}
		return []byte(src), nil
	}
}

// TestPartsAgainstModel compares flattened policies with the naive reading, in every state: what is bound, and where it
// leads.
func TestPartsAgainstModel(t *testing.T) {
	names := append(model.Words("ab", 2), "fin", "a*", "*")
	compared, clashing := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := drawParts(t)
		src := m.sources()
		p, found := CompileParts("policy.yaml", []byte(src["policy.yaml"]), opener(src))
		if errs := found.Errors(); len(errs) > 0 {
			for _, e := range errs {
				if e.Code != "overlap" {
					t.Fatalf("%v\n%v", e, src)
				}
			}
			clashing++
			return
		}
		compared++
		places := m.places(nil)
		if len(p.States()) != len(places) {
			t.Fatalf("%d states, want %d\n%v", len(p.States()), len(places), src)
		}
		for s, at := range places {
			if got := p.StateName(State(s)); got != m.name(at) {
				t.Fatalf("state %d is %s, want %s", s, got, m.name(at))
			}
			for _, name := range names {
				comparePart(t, m, p, State(s), at, name, src)
			}
		}
	})
	if compared < clashing/20 {
		t.Errorf("%d policies were compared, and %d had globs that contradict each other", compared, clashing)
	}
}

func comparePart(t *rapid.T, m *partsModel, p *Policy, s State, at placeModel, name string, src map[string]string) {
	b, ok := m.lookup(at, name)
	if m.state(at, 0).terminal {
		ok = false
	}
	v := p.Decide(Configuration{State: s}, &Request{Kind: Tool, Name: name, Listed: true})
	if v.Allowed != (ok && !b.none) {
		t.Fatalf("%s: %q: allowed %v, want %v: %+v\n%v", m.name(at), name, v.Allowed, ok && !b.none, b, src)
	}
	if !v.Allowed {
		return
	}
	if v.Rule.Pattern != b.pattern {
		t.Fatalf("%s: %q: by %v, want %+v\n%v", m.name(at), name, v.Rule, b, src)
	}
	to, terminal, of := m.leads(at, b.depth, b.leadModel)
	if of >= 0 {
		return // see TestReturnsAgainstModel
	}
	step, err := p.Next(Configuration{State: s}, v.Symbol, Success)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.StateName(step.Entered); got != m.name(to) || step.Terminal != terminal || v.Turn != (terminal || m.name(to) != m.name(at)) {
		t.Fatalf("%s: %q: to %s, terminal %v, turn %v; want %s, %v\n%v", m.name(at), name, got, step.Terminal, v.Turn, m.name(to), terminal, src)
	}
}

// drawReturns has some edges of a drawn policy return.
func drawReturns(t *rapid.T, m *partsModel) {
	some := func(l *leadModel) {
		if rapid.IntRange(0, 3).Draw(t, "returns") == 0 {
			*l = leadModel{returns: true}
		}
	}
	for _, f := range m.files {
		if rapid.IntRange(0, 3).Draw(t, "everywhere returns") == 0 {
			f.states[0].without = true // runs, and parts, begin there
			for j := range f.everywhere {
				if !f.everywhere[j].none {
					some(&f.everywhere[j].leadModel)
				}
			}
		}
		for i := range f.states {
			st := &f.states[i]
			for j := range st.binds {
				if i > 0 && !st.binds[j].none {
					some(&st.binds[j].leadModel)
				}
			}
			for name, exit := range st.exits {
				if i > 0 {
					some(&exit)
					st.exits[name] = exit
				}
			}
		}
	}
}

// TestReturnsAgainstModel walks through policies with parts and returns, and compares where a run is with the naive
// reading, which remembers every entering and forgets nothing.
func TestReturnsAgainstModel(t *testing.T) {
	names := append(model.Words("ab", 2), "fin", "a*", "*")
	returned, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := drawParts(t)
		drawReturns(t, m)
		src := m.sources()
		p, found := CompileParts("policy.yaml", []byte(src["policy.yaml"]), opener(src))
		if p == nil || found.Err() != nil {
			for _, e := range found.Errors() {
				if e.Code != "overlap" && e.Code != "return" {
					t.Fatalf("%v\n%v", e, src)
				}
			}
			refused++
			return
		}
		w, at := walkModel{m.enter(nil, 0, "s"), map[string]placeModel{}, 0}, p.Initial()
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			leading := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
				v := p.Decide(at, &Request{Kind: Tool, Name: name, Listed: true})
				return !v.Turn || name == "fin"
			})
			name := rapid.SampledFrom(append(leading, names...)).Draw(t, "name")
			v := p.Decide(at, &Request{Kind: Tool, Name: name, Listed: true})
			b, ok := m.lookup(w.at, name)
			if v.Allowed != (ok && !b.none) {
				t.Fatalf("step %d: %s: %q: allowed %v\n%v", i, m.name(w.at), name, v.Allowed, src)
			}
			if !v.Allowed {
				continue
			}
			before := m.name(w.at)
			w.step(m, b.depth, b.leadModel)
			step, err := p.Next(at, v.Symbol, Success)
			if err != nil || p.StateName(step.To.State) != m.name(w.at) {
				t.Fatalf("step %d: %s: %q: to %s, %v; want %s\n%v", i, before, name, p.StateName(step.To.State), err, m.name(w.at), src)
			}
			at = step.To
		}
		returned += w.back
	})
	if returned == 0 {
		t.Errorf("%d steps returned, %d policies were refused", returned, refused)
	}
}
