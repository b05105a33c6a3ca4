package policy

import "github.com/fsm-proxy/fsm-proxy/internal/strictyaml"

// checkOverlaps reports globs that match a common name, of which neither lies
// within the other, and which lead to different places: nothing says which
// holds. The patterns alone decide, whatever an upstream lists, and no third
// pattern lifts it.
func (c *compiler) checkOverlaps() {
	for _, k := range AllKinds {
		c.overlapsEverywhere(k)
		for s := range c.p.states {
			c.overlapsIn(State(s), k)
		}
	}
}

// overlapsIn compares the globs of a state with each other, and with those that
// it takes of everywhere.
func (c *compiler) overlapsIn(s State, k Kind) {
	own := c.p.states[s].own[k].globs
	for i, a := range own {
		for _, b := range own[i+1:] {
			c.overlap(s, a, b)
		}
		for _, b := range c.p.everywhere[k].globs {
			if c.p.Takes(s, b) {
				c.overlap(s, a, b)
			}
		}
	}
}

// overlapsEverywhere compares the globs of everywhere with each other, in the
// states that take both, and reports a pair once.
func (c *compiler) overlapsEverywhere(k Kind) {
	globs := c.p.everywhere[k].globs
	var takers []State
	for s := range c.p.states {
		if c.p.states[s].Inherits {
			takers = append(takers, State(s))
		}
	}
	for i, a := range globs {
	pairs:
		for _, b := range globs[i+1:] {
			// What is the same without a state is the same in every state.
			if sameValue(a, b, Everywhere) || !ambiguous(a, b) {
				continue
			}
			for _, s := range takers {
				if c.p.Takes(s, a) && c.p.Takes(s, b) && c.overlap(s, a, b) {
					continue pairs
				}
			}
		}
	}
}

// overlap reports two globs that contradict each other in a state.
func (c *compiler) overlap(s State, a, b *Binding) bool {
	if sameValue(a, b, s) || !ambiguous(a, b) {
		return false
	}
	if a.Compare(b.Rule) > 0 {
		a, b = b, a
	}
	x, y := a.Pattern, b.Pattern
	c.r.Errorf(b.Place(), "overlap", "%s and %s (line %d) both match %s, neither is the more specific, and in state %s they do not say the same; give both one value, or narrow one",
		strictyaml.Quote(y), strictyaml.Quote(x), a.Line, strictyaml.Quote(witness(x, y)), strictyaml.Quote(c.p.StateName(s)))
	return true
}

// ambiguous reports whether two globs match a common name and neither language
// lies within the other.
func ambiguous(a, b *Binding) bool {
	x, y := a.Pattern, b.Pattern
	return intersects(x, y) && !includes(x, y) && !includes(y, x)
}

// sameValue reports whether two bindings lead to the same places from a state.
func sameValue(a, b *Binding, s State) bool {
	if a.None != b.None || a.By != b.By || len(a.Cases) != len(b.Cases) {
		return false
	}
	for i := range a.Cases {
		other := b.Case(a.Cases[i].Text)
		if other == nil || !sameEdges(&a.Cases[i], other, s) {
			return false
		}
	}
	return true
}

func sameEdges(a, b *Case, s State) bool {
	for _, o := range AllOutcomes {
		x, y := a.Leads(o), b.Leads(o)
		if x.In(s) != y.In(s) || x.Terminal != y.Terminal {
			return false
		}
	}
	return a.Exclusive == b.Exclusive
}
