package policy

import "slices"

// Verdict is the answer to one request, with its reason. The zero value denies.
type Verdict struct {
	// Allowed is whether the request may go upstream.
	Allowed bool
	// Bound is whether a binding holds for the name, whatever it says of its case.
	Bound bool
	// ByGlob is whether a glob decided, allowed or not. A glob binds only what
	// the upstream lists: a caller that did not know must look, and ask again
	// with listed false if the name is not there.
	ByGlob bool
	// Turn is whether the call takes the run's turn: an edge of what was asked
	// for changes the configuration, or the binding is exclusive.
	Turn bool
	// Code says why not. It is CodeNone if, and only if, Allowed.
	Code Code
	// Rule is the binding that decided, the zero Rule where none did.
	Rule Rule
	// Symbol is what to give to Next once the outcome is known.
	Symbol Symbol
}

// Decide says whether name may be asked for in c, and why. It is pure. listed
// says whether the upstream lists the name. arg returns the decoded text of a
// top-level string argument, ok false if it is missing or no string; it is
// called at most once, only for a binding with `by`, and may be nil.
func (p *Policy) Decide(c Configuration, k Kind, name string, listed bool, arg func(name string) (text string, ok bool)) Verdict {
	v := Verdict{Symbol: Symbol{Kind: k, Name: name}}
	if !p.has(c.State) || int(k) >= Kinds {
		v.Code = NotAvailable
		return v
	}
	if c.Complete {
		v.Code = RunComplete
		return v
	}
	b := p.lookup(c.State, k, name, listed)
	if b == nil || b.none {
		return p.refuse(v, b, listed)
	}
	return b.decide(v, c.State, arg)
}

// decide answers for a binding that holds.
func (b *binding) decide(v Verdict, s State, arg func(string) (string, bool)) Verdict {
	v.Rule, v.Bound, v.ByGlob = b.rule, true, b.glob
	e := &b.edges
	if b.by != "" {
		var text string
		var ok bool
		if arg != nil {
			text, ok = arg(b.by)
		}
		if ok {
			e, ok = b.caseOf[text]
		}
		if !ok {
			v.Code = UnknownCase
			return v
		}
		v.Symbol.Case = text
	}
	v.Allowed, v.Turn = true, e.turn(s)
	return v
}

// refuse answers for a name that is not bound; b is the `none` that unbound it,
// or nil.
func (p *Policy) refuse(v Verdict, b *binding, listed bool) Verdict {
	if b != nil {
		v.Rule, v.ByGlob = b.rule, b.glob
	}
	v.Code = UnknownAction
	if p.boundSomewhere(v.Symbol.Kind, v.Symbol.Name, listed) {
		v.Code = InvalidTransition
	}
	return v
}

func (p *Policy) boundSomewhere(k Kind, name string, listed bool) bool {
	for s := range p.states {
		if p.bound(State(s), k, name, listed) {
			return true
		}
	}
	return false
}

// bound reports whether a name is bound in a state, after precedence and none.
func (p *Policy) bound(s State, k Kind, name string, listed bool) bool {
	b := p.lookup(s, k, name, listed)
	return b != nil && !b.none
}

// holds returns the binding under which something is bound in c, or nil.
func (p *Policy) holds(c Configuration, k Kind, name string, listed bool) *binding {
	if c.Complete || !p.has(c.State) || int(k) >= Kinds {
		return nil
	}
	b := p.lookup(c.State, k, name, listed)
	if b == nil || b.none {
		return nil
	}
	return b
}

// By returns the name of the argument that splits a listed name in c, "" if none
// does.
func (p *Policy) By(c Configuration, k Kind, name string) string {
	if b := p.holds(c, k, name, true); b != nil {
		return b.by
	}
	return ""
}

// Cases returns the values that the argument By may have for a listed name in c,
// in the file's order, nil if it is not split.
func (p *Policy) Cases(c Configuration, k Kind, name string) []string {
	b := p.holds(c, k, name, true)
	if b == nil || b.by == "" {
		return nil
	}
	out := make([]string, len(b.cases))
	for i := range b.cases {
		out[i] = b.cases[i].text
	}
	return out
}

// Visible reports whether a listed item is bound in c, thus shown and callable.
func (p *Policy) Visible(c Configuration, k Kind, name string) bool {
	return p.holds(c, k, name, true) != nil
}

// VisibleDiffers reports whether two configurations may show different items of
// kind k, from the bindings alone. False is certain; true may still come out the
// same for what a given upstream lists.
func (p *Policy) VisibleDiffers(a, b Configuration, k Kind) bool {
	return p.class(a, k) != p.class(b, k)
}

func (p *Policy) class(c Configuration, k Kind) int32 {
	if c.Complete || !p.has(c.State) || int(k) >= Kinds {
		return 0
	}
	return p.states[c.State].class[k]
}

// Steady reports whether a name is bound in every state in which anything can be,
// and moves no run in any: what it reads hangs on nothing that the automaton knows.
func (p *Policy) Steady(k Kind, name string, listed bool) bool {
	if int(k) >= Kinds {
		return false
	}
	for i := range p.states {
		s := State(i)
		if p.states[s].Terminal {
			continue
		}
		b := p.lookup(s, k, name, listed)
		if b == nil || b.none || b.turns(s) {
			return false
		}
	}
	return true
}

// Everywhere says whether name may be asked for in whatever state a run is in, and
// moves it from none: what a request may do that belongs to no run. Its verdict
// takes no turn. Where it is not allowed the code is RunNotFound: it hangs on the
// run. The arguments are as for Decide, but that arg may be called for several names.
func (p *Policy) Everywhere(k Kind, name string, listed bool, arg func(name string) (text string, ok bool)) Verdict {
	symbol := Symbol{Kind: k, Name: name}
	all, refused := Verdict{}, Verdict{Code: RunNotFound, Symbol: symbol}
	if int(k) >= Kinds {
		return refused
	}
	arg = remembered(arg)
	for i := range p.states {
		s := State(i)
		if p.states[s].Terminal {
			continue
		}
		b := p.lookup(s, k, name, listed)
		if b == nil || b.none {
			return refused
		}
		v := b.decide(Verdict{Symbol: symbol}, s, arg)
		if !v.Allowed || v.Turn {
			return refused
		}
		v.ByGlob = v.ByGlob || all.ByGlob
		all = v
	}
	return all
}

// BoundIn returns the states in which a name is bound, after precedence and
// none, in the file's order. listed is as for Decide.
func (p *Policy) BoundIn(k Kind, name string, listed bool) []State {
	if int(k) >= Kinds {
		return nil
	}
	var out []State
	for s := range p.states {
		if p.bound(State(s), k, name, listed) {
			out = append(out, State(s))
		}
	}
	return out
}

// ExactIn returns the exact names of kind k bound in c, in the file's order.
func (p *Policy) ExactIn(c Configuration, k Kind) []string {
	if c.Complete || !p.has(c.State) || int(k) >= Kinds {
		return nil
	}
	var out []string
	for _, name := range p.Exact(k) {
		if p.bound(c.State, k, name, false) {
			out = append(out, name)
		}
	}
	return out
}

// Exact returns the exact names of kind k that are bound in some state, in the
// file's order.
func (p *Policy) Exact(k Kind) []string {
	if int(k) >= Kinds {
		return nil
	}
	return slices.Clone(p.exact[k])
}

// turns reports whether some case of a binding takes the run's turn in a state.
func (b *binding) turns(s State) (any bool) {
	b.each(func(_ string, e *edges) { any = any || e.turn(s) })
	return any
}
