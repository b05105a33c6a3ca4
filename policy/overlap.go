package policy

import "github.com/fsm-proxy/fsm-proxy/internal/strictyaml"

// checkOverlaps reports globs that match a common name, of which neither lies
// within the other, and which lead to different places: nothing says which
// holds. The patterns alone decide, whatever an upstream lists, and no third
// pattern lifts it.
func (c *checker) checkOverlaps() {
	for k := range Kinds {
		c.overlapsEverywhere(Kind(k))
		for s := range c.p.states {
			c.overlapsIn(State(s), Kind(k))
		}
	}
}

// overlapsIn compares the globs of a state with each other, and with those that
// it takes of everywhere.
func (c *checker) overlapsIn(s State, k Kind) {
	own := c.p.states[s].own[k].globs
	for i, a := range own {
		for _, b := range own[i+1:] {
			c.overlap(s, a, b)
		}
		for _, b := range c.p.everywhere[k].globs {
			if c.p.takes(s, k, b) {
				c.overlap(s, a, b)
			}
		}
	}
}

// overlapsEverywhere compares the globs of everywhere with each other, in the
// states that take both, and reports a pair once.
func (c *checker) overlapsEverywhere(k Kind) {
	globs := c.p.everywhere[k].globs
	var takers []State
	for s := range c.p.states {
		if c.p.states[s].inherits {
			takers = append(takers, State(s))
		}
	}
	for i, a := range globs {
		for _, b := range globs[i+1:] {
			// What is the same without a state is the same in every state.
			if !sameValue(a, b, here) && ambiguous(a, b) {
				c.overlapAnywhere(takers, k, a, b)
			}
		}
	}
}

func (c *checker) overlapAnywhere(takers []State, k Kind, a, b *binding) {
	for _, s := range takers {
		if c.p.takes(s, k, a) && c.p.takes(s, k, b) && c.overlap(s, a, b) {
			return
		}
	}
}

// overlap reports two globs that contradict each other in a state.
func (c *checker) overlap(s State, a, b *binding) bool {
	if sameValue(a, b, s) || !ambiguous(a, b) {
		return false
	}
	if a.rule.compare(b.rule) > 0 {
		a, b = b, a
	}
	x, y := a.rule.Pattern, b.rule.Pattern
	c.r.Errorf(c.at(b.rule), "overlap", "%s and %s (line %d) both match %s, neither is the more specific, and in state %s they do not say the same; give both one value, or narrow one",
		strictyaml.Quote(y), strictyaml.Quote(x), a.rule.Line, strictyaml.Quote(witness(x, y)), strictyaml.Quote(c.p.StateName(s)))
	return true
}

// ambiguous reports whether two globs match a common name and neither language
// lies within the other.
func ambiguous(a, b *binding) bool {
	x, y := a.rule.Pattern, b.rule.Pattern
	return intersects(x, y) && !includes(x, y) && !includes(y, x)
}

// sameValue reports whether two bindings lead to the same places from a state.
func sameValue(a, b *binding, s State) bool {
	if a.none || b.none {
		return a.none == b.none
	}
	if a.by != b.by || len(a.cases) != len(b.cases) {
		return false
	}
	if a.by == "" {
		return sameEdges(&a.edges, &b.edges, s)
	}
	for i := range a.cases {
		other, ok := b.caseOf[a.cases[i].text]
		if !ok || !sameEdges(&a.cases[i].edges, other, s) {
			return false
		}
	}
	return true
}

func sameEdges(a, b *edges, s State) bool {
	for i := range a.to {
		x, y := a.to[i], b.to[i]
		if x.in(s) != y.in(s) || x.terminal != y.terminal {
			return false
		}
	}
	return a.exclusive == b.exclusive
}
