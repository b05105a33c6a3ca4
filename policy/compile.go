package policy

import (
	"fmt"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// maxGlobs is how many globs one place may bind of one kind: they are tried one
// after the other.
const maxGlobs = 256

// maxGlob is how long a glob may be, in bytes.
const maxGlob = 4096

// maxInherited is how many bindings the states may have of everywhere, all
// together.
const maxInherited = 200_000

// compiler turns a source into an edge table.
type compiler struct {
	r       reader
	s       *source
	p       *Policy
	names   []string // of states
	targets []string // what may stand for a target
	short   []string // and for a value that is a target alone
}

func (r reader) compile(s *source) *Policy {
	c := &compiler{r: r, s: s, p: &Policy{settings: s.settings, file: r.File(), byName: map[string]State{}, renames: map[string]State{}}}
	c.checkTop()
	c.enterStates()
	c.enterInitial()
	c.enterRenames()
	for k := range Kinds {
		c.p.everywhere[k] = c.layer(here, Kind(k), s.everywhere.kinds[k])
	}
	for i := range s.states {
		for k := range Kinds {
			c.p.states[i].own[k] = c.layer(State(i), Kind(k), s.states[i].kinds[k])
		}
	}
	c.checkTerminalStates()
	c.checkSize()
	if r.OK() {
		c.p.finish()
		(&checker{r: r, s: s, p: c.p}).check()
	}
	return c.p
}

// checkSize bounds the edge table, which has what everywhere binds once for each
// state that takes it.
func (c *compiler) checkSize() {
	inherited, takers := 0, 0
	for k := range Kinds {
		inherited += len(c.p.everywhere[k].order)
	}
	for i := range c.p.states {
		if c.p.states[i].inherits {
			takers++
		}
	}
	if inherited*takers > maxInherited {
		c.r.Errorf(at{Line: 1, Column: 1}, "too-large", "everywhere binds %d names in %d states; at most %d in all: bind them where they are needed", inherited, takers, maxInherited)
	}
}

func (c *compiler) checkTop() {
	top := at{Line: 1, Column: 1}
	if !c.s.version {
		c.r.Errorf(top, "version", "no version; begin the file with \"version: 1\"")
	}
	if !c.s.hasStates {
		c.r.Errorf(top, "states", "no states; write \"states:\" and below it the states by name")
	}
	if !c.s.hasInitial {
		c.r.Errorf(top, "initial", "no initial; write \"initial: STATE\", the state in which a run begins")
	}
}

func (c *compiler) enterStates() {
	for i, st := range c.s.states {
		c.p.byName[st.name.value] = State(i)
		c.names = append(c.names, st.name.value)
		e := stateEntry{
			StateInfo: StateInfo{Name: st.name.value, Description: st.description, Terminal: st.terminal},
			place:     Rule{File: c.r.File(), Line: st.Line, Column: st.Column},
			inherits:  !st.without && !st.terminal,
		}
		c.p.states = append(c.p.states, e)
	}
	c.short = append(slices.Clone(c.names), "stay", "none")
	c.targets = c.short[:len(c.names)+1]
}

func (c *compiler) enterInitial() {
	t := c.s.initial
	if !t.given {
		return
	}
	i, ok := c.state(t, "initial", c.names)
	if ok && c.p.states[i].Terminal {
		c.r.Errorf(t.at, "initial", "initial: %s is terminal, so a run would end before it begins; name another state", strictyaml.Quote(t.value))
	}
	c.p.initial = i
}

func (c *compiler) enterRenames() {
	for _, x := range c.s.renames {
		if _, still := c.p.byName[x.old.value]; still {
			c.r.Errorf(x.old.at, "renamed", "renamed: %s is still a state; \"renamed\" maps states that are gone to those that took their place", strictyaml.Quote(x.old.value))
		}
		if s, ok := c.state(x.new, "renamed", c.names); ok {
			c.p.renamed = append(c.p.renamed, Rename{x.old.value, x.new.value})
			c.p.renames[x.old.value] = s
		}
	}
}

// state finds the state that a text names, and reports it if there is none.
func (c *compiler) state(t text, what string, candidates []string) (State, bool) {
	if i, ok := c.p.byName[t.value]; ok {
		return i, true
	}
	if !c.s.hasStates {
		return 0, false
	}
	hint := c.r.DidYouMean(t.value, candidates)
	switch {
	case t.value == "none" && what != "initial":
		hint = "; none unbinds a name and is no target: write stay, or leave the edge out"
	case hint == "" && len(c.names) > 0:
		hint = "; the states are " + strictyaml.Listed(c.names)
	}
	c.r.Errorf(t.at, "unknown-target", "%s: %s is no state%s", what, strictyaml.Quote(t.value), hint)
	return 0, false
}

// layer compiles what one place binds of one kind.
func (c *compiler) layer(home State, k Kind, sources []bindingSource) layer {
	l := layer{exact: map[string]*binding{}, byGlob: map[string]*binding{}}
	for i := range sources {
		b := c.binding(home, k, &sources[i])
		l.order = append(l.order, b)
		if b.glob {
			l.globs = append(l.globs, b)
			l.byGlob[b.rule.Pattern] = b
		} else {
			l.exact[b.rule.Pattern] = b
		}
	}
	if n := len(l.globs); n > maxGlobs {
		c.r.Errorf(sources[0].pattern.at, "glob", "%d globs over %s in one place; at most %d: join some, or name what they match", n, k.Plural(), maxGlobs)
		l.globs = nil
	}
	slices.SortStableFunc(l.globs, func(a, b *binding) int { return compareGlobs(a.rule.Pattern, b.rule.Pattern) })
	return l
}

func (c *compiler) binding(home State, k Kind, s *bindingSource) *binding {
	t := s.pattern
	c.checkJoined(t)
	if len(t.value) > maxGlob && isGlob(t.value) {
		c.r.Errorf(t.at, "glob", "a glob of %d bytes; at most %d", len(t.value), maxGlob)
	}
	b := &binding{
		rule: Rule{File: c.r.File(), Line: t.Line, Column: t.Column, Pattern: t.value},
		home: home, kind: k, glob: isGlob(t.value), none: s.value.none, by: s.value.by.value, byAt: s.value.by.at,
	}
	if b.by == "" {
		b.edges = c.edges(b, "", &s.value)
		return b
	}
	c.enterCases(b, s.value)
	return b
}

func (c *compiler) enterCases(b *binding, v valueSource) {
	b.caseOf = make(map[string]*edges, len(v.cases))
	b.cases = make([]caseEdges, len(v.cases))
	for i, x := range v.cases {
		b.cases[i] = caseEdges{x.text.value, x.text.at, c.edges(b, x.text.value, &x.value)}
		b.cases[i].exclusive = b.cases[i].exclusive || v.exclusive
		b.caseOf[x.text.value] = &b.cases[i].edges
	}
}

// checkJoined reports NAME:STATE, which YAML reads as one word.
func (c *compiler) checkJoined(t text) {
	for i := len(t.value) - 1; t.joined && i > 0; i-- {
		if t.value[i] != ':' {
			continue
		}
		rest := t.value[i+1:]
		if _, state := c.p.byName[rest]; state || rest == "stay" || rest == "none" {
			c.r.Errorf(t.at, "colon", "%s is one word in YAML; put a space after the colon: %s: %s (or quote it, if the name is such)", strictyaml.Quote(t.value), t.value[:i], rest)
		}
		return
	}
}

// edges resolves the edges of one value.
func (c *compiler) edges(b *binding, text string, v *valueSource) edges {
	e := edges{exclusive: v.exclusive, stated: stated{bare: v.bare}}
	if _, ok := c.p.byName[v.null.value]; ok && v.null.given {
		c.r.Errorf(v.null.at, "null", "%s means nothing here, so the name would stay; quote it to mean the state: \"%s\"", v.null.value, v.null.value)
	}
	for i := range v.edges {
		c.target(v, i)
	}
	for i, o := range allOutcomes {
		t, given := v.edge(o)
		e.to[i] = c.resolved(t)
		e.stated.explicit[i] = given
		e.event[i] = fmt.Sprintf("%s %q %q %s", b.kind, b.rule.Pattern, text, o)
	}
	return e
}

// target reports an edge whose target is no state.
func (c *compiler) target(v *valueSource, i int) {
	t := v.edges[i].to
	if !t.given {
		return
	}
	what, candidates := edgeKeys[i], c.targets
	if v.short {
		what, candidates = "target", c.short
	}
	c.state(t, what, candidates)
}

// resolved is a target in the table; one that is no state stays, and was reported.
func (c *compiler) resolved(t targetSource) target {
	out := target{state: here, terminal: t.terminal}
	if i, ok := c.p.byName[t.to.value]; ok && t.to.given {
		out.state = i
		out.terminal = t.terminal || c.p.states[i].Terminal
	}
	return out
}

func (c *compiler) checkTerminalStates() {
	for i := range c.p.states {
		st := &c.p.states[i]
		for k := range Kinds {
			if st.Terminal && len(st.own[k].order) > 0 {
				b := st.own[k].order[0]
				c.r.Errorf(at{Line: b.rule.Line, Column: b.rule.Column}, "terminal-binds", "state %s is terminal and binds %s; no run rests there: remove it, or the state's \"terminal\"", strictyaml.Quote(st.Name), strictyaml.Quote(b.rule.Pattern))
			}
		}
	}
}

// finish computes what the table is asked for often.
func (p *Policy) finish() {
	for k := range Kinds {
		p.enterClasses(Kind(k))
		p.enterExact(Kind(k))
	}
	p.enterMachines()
}

// enterExact gathers the exact names that some state binds. What a state names
// itself is bound there; what everywhere names may be unbound in each state.
func (p *Policy) enterExact(k Kind) {
	var all []*binding
	for _, b := range p.everywhere[k].order {
		if !b.glob && !b.none && p.boundSomewhere(k, b.rule.Pattern, false) {
			all = append(all, b)
		}
	}
	for s := range p.states {
		for _, b := range p.states[s].own[k].order {
			if !b.glob && !b.none {
				all = append(all, b)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *binding) int { return a.rule.compare(b.rule) })
	seen := map[string]bool{}
	for _, b := range all {
		if !seen[b.rule.Pattern] {
			seen[b.rule.Pattern] = true
			p.exact[k] = append(p.exact[k], b.rule.Pattern)
		}
	}
}
