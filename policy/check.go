package policy

import (
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// checker looks at a compiled policy as a whole.
type checker struct {
	r     reader
	s     *source
	p     *Policy
	graph graph
}

func (c *checker) check() {
	c.checkOverlaps()
	c.graph = c.p.graph()
	c.checkTerminals()
	for s := range c.p.states {
		c.checkState(State(s))
	}
	c.checkShadowed()
	c.checkUnbinding()
	c.noteCycle()
	c.noteCompletion()
	c.noteStays()
	c.checkUnknown()
}

func (c *checker) at(r Rule) at { return at{Line: r.Line, Column: r.Column} }

// graph is the table without its symbols: which states lead where.
type graph struct {
	next     [][]State // over edges that are not terminal
	finishes []bool    // has a terminal edge
	ends     [][]State // the targets of terminal edges
	binds    []bool    // binds something
	reached  []bool
	ended    []bool // the target of a terminal edge that is reached
	hopeful  []bool // a terminal edge is reached from here
}

func (p *Policy) graph() graph {
	n := len(p.states)
	g := graph{
		next: make([][]State, n), finishes: make([]bool, n), ends: make([][]State, n),
		binds: make([]bool, n), reached: make([]bool, n), ended: make([]bool, n),
	}
	for s := range p.states {
		g.addState(p, State(s))
	}
	g.reach(p.initial)
	for s := range p.states {
		g.reached[s] = g.reached[s] || p.states[s].Terminal && g.ended[s]
	}
	g.hope()
	return g
}

func (g *graph) addState(p *Policy, s State) {
	seen := map[target]bool{}
	p.effective(s, func(b *binding) {
		g.binds[s] = g.binds[s] || !b.none
		b.each(func(_ string, e *edges) {
			for _, t := range e.to {
				t.state = t.in(s)
				if !seen[t] {
					seen[t] = true
					g.addEdge(s, t)
				}
			}
		})
	})
}

func (g *graph) addEdge(s State, t target) {
	if t.terminal {
		g.finishes[s] = true
		g.ends[s] = append(g.ends[s], t.state)
		return
	}
	g.next[s] = append(g.next[s], t.state)
}

// reach walks from the initial state over edges that are not terminal; the
// targets of terminal edges are met with their source, and no walk goes on from
// there.
func (g *graph) reach(initial State) {
	walk := []State{initial}
	g.reached[initial] = true
	for len(walk) > 0 {
		s := walk[len(walk)-1]
		walk = walk[:len(walk)-1]
		for _, t := range g.ends[s] {
			g.ended[t] = true
		}
		for _, t := range g.next[s] {
			if !g.reached[t] {
				g.reached[t] = true
				walk = append(walk, t)
			}
		}
	}
}

// hope walks backwards from the states with a terminal edge.
func (g *graph) hope() {
	before := make([][]State, len(g.next))
	var walk []State
	for s := range g.next {
		for _, t := range g.next[s] {
			before[t] = append(before[t], State(s))
		}
		if g.finishes[s] {
			walk = append(walk, State(s))
		}
	}
	g.hopeful = append([]bool(nil), g.finishes...)
	for len(walk) > 0 {
		s := walk[len(walk)-1]
		walk = walk[:len(walk)-1]
		for _, t := range before[s] {
			if !g.hopeful[t] {
				g.hopeful[t] = true
				walk = append(walk, t)
			}
		}
	}
}

// cycle returns states that runs can go round through, in order, nil if there are
// none. To stay in a state is no cycle.
func (g *graph) cycle() []State {
	leads := make([]int, len(g.next)) // how many reached states it leads to that may be on a cycle
	before := make([][]State, len(g.next))
	var walk []State
	for s := range g.next {
		for _, t := range g.next[s] {
			if g.reached[s] && t != State(s) {
				leads[s]++
				before[t] = append(before[t], State(s))
			}
		}
		if leads[s] == 0 {
			walk = append(walk, State(s))
		}
	}
	for len(walk) > 0 { // take away what leads nowhere
		s := walk[len(walk)-1]
		walk = walk[:len(walk)-1]
		for _, t := range before[s] {
			if leads[t]--; leads[t] == 0 {
				walk = append(walk, t)
			}
		}
	}
	from := slices.IndexFunc(leads, func(n int) bool { return n > 0 })
	if from < 0 {
		return nil
	}
	var path []State
	at := make(map[State]int)
	for s := State(from); ; {
		if i, met := at[s]; met {
			return path[i:]
		}
		at[s] = len(path)
		path = append(path, s)
		others := g.next[s]
		s = others[slices.IndexFunc(others, func(t State) bool { return t != s && leads[t] > 0 })]
	}
}

// checkTerminals reports terminals that no run gets to.
func (c *checker) checkTerminals() {
	if c.graph.hopeful[c.p.initial] {
		return
	}
	if place, what := c.terminal(); what != "" {
		c.r.Errorf(place, "no-terminal-reached", "%s, but no terminal is reached from %s: no run can complete; lead an edge there, or remove \"terminal\"", what, strictyaml.Quote(c.p.StateName(c.p.initial)))
	}
}

// terminal finds the first terminal that the file declares.
func (c *checker) terminal() (place at, what string) {
	for s := range c.p.states {
		if st := &c.p.states[s]; st.Terminal {
			return c.at(st.place), "state " + strictyaml.Quote(st.Name) + " is terminal"
		}
	}
	c.eachLayer(func(l *layer) {
		for _, b := range l.order {
			b.each(func(_ string, e *edges) {
				for _, t := range e.to {
					if t.terminal && what == "" {
						place, what = c.at(b.rule), "an edge of "+strictyaml.Quote(b.rule.Pattern)+" is terminal"
					}
				}
			})
		}
	})
	return place, what
}

func (c *checker) eachLayer(f func(l *layer)) {
	for k := range Kinds {
		f(&c.p.everywhere[k])
	}
	for s := range c.p.states {
		for k := range Kinds {
			f(&c.p.states[s].own[k])
		}
	}
}

// checkState warns of a state in which something about the graph is odd.
func (c *checker) checkState(s State) {
	st, g := &c.p.states[s], &c.graph
	name, place := strictyaml.Quote(st.Name), c.at(st.place)
	switch {
	case g.reached[s]:
	case g.ended[s]:
		c.r.Add(LevelWarning, place, "unreachable", "only terminal edges lead to state %s, so no run goes on there; make it terminal, or lead another edge to it", name)
	default:
		c.r.Add(LevelWarning, place, "unreachable", "state %s is not reached from %s; lead an edge to it, or remove it", name, strictyaml.Quote(c.p.StateName(c.p.initial)))
	}
	switch {
	case st.Terminal:
	case !g.binds[s]:
		c.r.Add(LevelWarning, place, "dead-end", "state %s is a dead end: nothing is bound there, so a run that enters it rests there for ever; bind a name that leads on, or make the state terminal", name)
	case g.reached[s] && g.hopeful[c.p.initial] && !g.hopeful[s]:
		c.r.Add(LevelWarning, place, "trap", "state %s is a trap: a run that enters it can never complete; lead an edge out of it", name)
	}
}

// checkShadowed warns of what everywhere binds and every state replaces.
func (c *checker) checkShadowed() {
	for k := range Kinds {
		for _, b := range c.p.everywhere[k].order {
			if !c.p.anyTakes(Kind(k), b) {
				c.r.Add(LevelWarning, c.at(b.rule), "shadowed", "%s has no effect: every state gives it a value of its own, is terminal, or takes nothing of everywhere; remove it", strictyaml.Quote(b.rule.Pattern))
			}
		}
	}
}

// anyTakes reports whether some state takes a binding of everywhere.
func (p *Policy) anyTakes(k Kind, b *binding) bool {
	for s := range p.states {
		if p.takes(State(s), k, b) {
			return true
		}
	}
	return false
}

// takes reports whether a binding of everywhere has a say in a state.
func (p *Policy) takes(s State, k Kind, b *binding) bool {
	st := &p.states[s]
	return st.inherits && st.own[k].find(b.rule.Pattern) == nil
}

// checkUnbinding warns of a state's "*": none that names of everywhere survive,
// since they are the more specific.
func (c *checker) checkUnbinding() {
	for s := range c.p.states {
		st := &c.p.states[s]
		for k := range Kinds {
			if all := st.own[k].byGlob["*"]; all != nil && all.none && st.inherits {
				c.warnSurvivors(State(s), Kind(k), all)
			}
		}
	}
}

func (c *checker) warnSurvivors(s State, k Kind, all *binding) {
	var names []string
	for _, b := range c.p.everywhere[k].order {
		if !b.none && c.p.takes(s, k, b) {
			names = append(names, b.rule.Pattern)
		}
	}
	if len(names) > 0 {
		c.r.Add(LevelWarning, c.at(all.rule), "survives-none", "\"*\": none does not unbind %s: names of everywhere are more specific than \"*\"; write \"everywhere: false\" in state %s to take nothing of everywhere, or give each name a value in the state",
			strictyaml.And(names), strictyaml.Quote(c.p.StateName(s)))
	}
}

// noteCycle notes that runs of a policy go round and never end.
func (c *checker) noteCycle() {
	if c.graph.hopeful[c.p.initial] {
		return
	}
	if _, what := c.terminal(); what != "" {
		return // an error says so
	}
	cycle := c.graph.cycle()
	if len(cycle) == 0 {
		return
	}
	names := make([]string, len(cycle))
	for i, s := range cycle {
		names[i] = c.p.StateName(s)
	}
	c.r.Add(LevelNote, c.at(c.p.states[cycle[0]].place), "cycle", "runs go round through %s and never complete, as no edge is terminal: what may be called once in a round may be called again in the next; make an edge terminal if the work has an end",
		strictyaml.And(names))
}

// noteCompletion notes what follows the edges that complete a run, where the file
// does not say it.
func (c *checker) noteCompletion() {
	if c.p.completionSaid {
		return
	}
	var completing []*binding
	c.eachLayer(func(l *layer) {
		for _, b := range l.order {
			if b.completes() {
				completing = append(completing, b)
			}
		}
	})
	if len(completing) == 0 {
		return
	}
	verb := "complete"
	if len(completing) == 1 {
		verb = "completes"
	}
	c.r.Add(LevelNote, c.at(completing[0].rule), "no-on-complete", "%s %s the run, and there is no \"on_complete\": in the same step the run begins anew at %s, under the same key, so what was done once may be done again; write \"on_complete: stop\" if it may not, \"on_complete: restart\" if it may",
		patterns(completing), verb, strictyaml.Quote(c.p.StateName(c.p.initial)))
}

// completes reports whether some edge is terminal.
func (b *binding) completes() bool {
	found := false
	b.each(func(_ string, e *edges) {
		found = found || e.to[0].terminal || e.to[1].terminal || e.to[2].terminal
	})
	return found
}

// noteStays notes the outcomes that stay because nothing is said of them.
func (c *checker) noteStays() {
	c.eachLayer(func(l *layer) {
		var bare []*binding
		for _, b := range l.order {
			if b.by == "" && b.edges.stated.bare {
				bare = append(bare, b)
				continue
			}
			c.noteStay(b)
		}
		if len(bare) > 0 {
			c.r.Add(LevelNote, c.at(bare[0].rule), "implicit-stay", "%s: nothing is said, so the state stays whatever the outcome", patterns(bare))
		}
	})
}

func (c *checker) noteStay(b *binding) {
	var left []string
	b.each(func(text string, e *edges) {
		if !e.leaves(b.home) {
			return
		}
		for i, o := range allOutcomes[:Unknown.index()] {
			if !e.stated.explicit[i] {
				left = append(left, inCase("on "+o.String(), text, b))
			}
		}
	})
	if len(left) > 0 {
		c.r.Add(LevelNote, c.at(b.rule), "implicit-stay", "%s: nothing is said of what follows %s, so the state stays", strictyaml.Quote(b.rule.Pattern), strings.Join(left, ", "))
	}
}

func inCase(what, text string, b *binding) string {
	if b.by == "" {
		return what
	}
	return what + " in case " + strictyaml.Quote(text)
}

// checkUnknown warns of tools that lead on without saying what follows an unknown
// outcome: a client that cancels such a call may have had its effect, and can call
// it again. To read a resource or a prompt twice does no harm, so those are notes.
func (c *checker) checkUnknown() {
	c.eachLayer(func(l *layer) {
		for _, b := range l.order {
			if !b.lacksUnknown() {
				continue
			}
			level := LevelNote
			if b.kind == Tool {
				level = LevelWarning
			}
			c.r.AddAbout(level, c.at(b.rule), noOnUnknown, b.rule.Pattern, "%s%s: a call that was sent and then cancelled, or never answered, may have happened, and is taken %s; say where it leads (stay: it may be called again)",
				strictyaml.Quote(b.rule.Pattern), lacksUnknown.one, c.unknownLeads(b))
		}
	})
}

// lacksUnknown reports whether some case of a binding changes the configuration
// and does not say where unknown leads.
func (b *binding) lacksUnknown() bool {
	lacks := false
	b.each(func(_ string, e *edges) {
		lacks = lacks || e.leaves(b.home) && !e.stated.explicit[Unknown.index()]
	})
	return lacks
}

// unknownLeads says what an unknown outcome is taken as.
func (c *checker) unknownLeads(b *binding) string {
	as := ""
	b.each(func(_ string, e *edges) {
		switch {
		case !e.leaves(b.home) || e.stated.explicit[Unknown.index()]:
		case as == "" && e.stated.explicit[Error.index()]:
			as = "as on_error"
		case as == "":
			as = "as stay"
		}
	})
	return as
}

// patterns are the patterns of bindings, each once.
func patterns(bs []*binding) string {
	var names []string
	for _, b := range bs {
		names = appendNew(names, b.rule.Pattern)
	}
	return strictyaml.And(names)
}
