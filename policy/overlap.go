package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// checkOverlaps reports globs that match a common name, of which neither lies
// within the other, and which lead to different places: nothing says which
// holds. The patterns alone decide, whatever an upstream lists, and no third
// pattern lifts it.
func (c *compiler) checkOverlaps() {
	for b := range c.p.Bindings() {
		c.overlapsOfCases(b)
	}
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
	globs, takers := c.p.everywhere[k].globs, c.takers()
	for i, a := range globs {
	pairs:
		for _, b := range globs[i+1:] {
			// What is the same without a state is the same in every state.
			if sameValue(a, b, Everywhere) || !ambiguous(a.Pattern, b.Pattern) {
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

// takers returns the states that take what everywhere binds.
func (c *compiler) takers() (all []State) {
	for s := range c.p.states {
		if c.p.states[s].Inherits {
			all = append(all, State(s))
		}
	}
	return all
}

// overlap reports two globs that contradict each other in a state.
func (c *compiler) overlap(s State, a, b *Binding) bool {
	if sameValue(a, b, s) || !ambiguous(a.Pattern, b.Pattern) {
		return false
	}
	if a.Compare(b.Rule) > 0 {
		a, b = b, a
	}
	c.contradict(s, a.Pattern, a.Place(), b.Pattern, b.Place())
	return true
}

// contradict reports two globs, the first one's before the other's.
func (c *compiler) contradict(s State, x string, first Place, y string, place Place) {
	at := fmt.Sprintf("line %d", first.Line)
	if cmp.Or(first.File, c.r.File()) != cmp.Or(place.File, c.r.File()) {
		at = fmt.Sprintf("%s:%d", cmp.Or(first.File, c.r.File()), first.Line)
	}
	c.r.Errorf(place, "overlap", "%s and %s (%s) both match %s, neither is the more specific, and in state %s they do not say the same; give both one value, or narrow one",
		strictyaml.Quote(y), strictyaml.Quote(x), at, strictyaml.Quote(witness(x, y)), strictyaml.Quote(c.p.StateName(s)))
}

// overlapsOfCases compares the globs among a binding's cases with each other, in the
// states in which the binding has a say, and reports a pair once.
func (c *compiler) overlapsOfCases(b *Binding) {
	if len(b.globs) < 2 {
		return
	}
	in := []State{b.Home}
	if b.Home == Everywhere {
		in = slices.DeleteFunc(c.takers(), func(s State) bool { return !c.p.Takes(s, b) })
	}
	for i, x := range b.globs {
		for _, y := range b.globs[i+1:] {
			if sameEdges(x, y, b.Home) || !ambiguous(x.Value.text, y.Value.text) {
				continue
			}
			first, second := x, y
			if (Rule{Line: y.Place.Line, Column: y.Place.Column}).Compare(Rule{Line: x.Place.Line, Column: x.Place.Column}) < 0 {
				first, second = y, x
			}
			if at := slices.IndexFunc(in, func(s State) bool { return !sameEdges(x, y, s) }); at >= 0 {
				c.contradict(in[at], first.Value.text, first.Place, second.Value.text, second.Place)
			}
		}
	}
}

// ambiguous reports whether two globs match a common text and neither language
// lies within the other.
func ambiguous(x, y string) bool {
	return intersects(x, y) && !includes(x, y) && !includes(y, x)
}

// sameValue reports whether two bindings lead to the same places from a state.
func sameValue(a, b *Binding, s State) bool {
	if a.None != b.None || a.By != b.By || len(a.Cases) != len(b.Cases) {
		return false
	}
	for i := range a.Cases {
		other := b.Like(&a.Cases[i])
		if other == nil || !sameEdges(&a.Cases[i], other, s) {
			return false
		}
	}
	return true
}

func sameEdges(a, b *Case, s State) bool {
	if a.None || b.None {
		return a.None && b.None
	}
	return slices.EqualFunc(a.Alternatives, b.Alternatives, func(x, y Alternative) bool { return x.alike(&y, s) })
}

// alike reports whether two alternatives decide and lead alike in a state: what they say of
// conditions, outcomes and registers is the same text.
func (a *Alternative) alike(b *Alternative, s State) bool {
	return a.Exclusive == b.Exclusive && a.Irreversible == b.Irreversible && a.Timeout == b.Timeout && a.Approve.equal(b.Approve) && a.Limits.none() && b.Limits.none() && // each of which counts for itself
		slices.EqualFunc(a.Guards, b.Guards, func(x, y Guard) bool { return x.String() == y.String() }) &&
		slices.Equal(a.Because, b.Because) && slices.EqualFunc(a.For, b.For, func(x, y Audience) bool { return x.String() == y.String() }) &&
		slices.EqualFunc(a.Outcomes, b.Outcomes, func(x, y NamedOutcome) bool { return x.Name == y.Name && x.String() == y.String() }) &&
		slices.EqualFunc(a.edges, b.edges, func(x, y edge) bool {
			return x.In(s) == y.In(s) && x.Of == y.Of && x.Terminal == y.Terminal && slices.EqualFunc(x.set, y.set, Assignment.Equal)
		})
}

// Equal reports whether two assignments say the same.
func (a Assignment) Equal(b Assignment) bool {
	return a.Register.Name == b.Register.Name && a.Operation == b.Operation &&
		slices.EqualFunc(a.Values, b.Values, func(x, y *guard.Program) bool { return x.String() == y.String() })
}
