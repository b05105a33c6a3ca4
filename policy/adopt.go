package policy

// Adopt says where a run that rests in configuration c of old stands under p: in
// the state that p's renamed gives its state, else in the state of the same
// name. A complete run stays complete. A run under way whose state p made
// terminal completes there as if it had just entered it, so that it begins anew
// in the initial state on Restart. ok is false, and the configuration without
// meaning, where p has no such state: the run is stranded. Adopt is pure and
// does not allocate.
func (p *Policy) Adopt(old *Policy, c Configuration) (adopted Configuration, ok bool) {
	if !old.has(c.State) {
		return Configuration{}, false
	}
	s, ok := p.heir(old.states[c.State].Name)
	switch {
	case !ok:
		return Configuration{}, false
	case c.Complete || !p.states[s].Terminal:
		return Configuration{State: s, Complete: c.Complete}, true
	}
	return p.arrive(Configuration{State: s}, target{state: s, terminal: true}).To, true
}

// heir returns the state of p that takes the place of another policy's state.
func (p *Policy) heir(name string) (State, bool) {
	if s, ok := p.renames[name]; ok {
		return s, true
	}
	s, ok := p.byName[name]
	return s, ok
}

// BoundAnywhere reports whether p binds a name in some state, after precedence
// and none: all that a stranded run may still call. listed is as for Decide. It
// does not allocate.
func (p *Policy) BoundAnywhere(k Kind, name string, listed bool) bool {
	return int(k) < Kinds && p.boundSomewhere(k, name, listed)
}

// DecideAnywhere says whether p allows a request in some state: all that a
// stranded run may still call. Its verdict tells neither rule nor symbol, and is
// by a glob only if no exact name allows the same. The arguments are as for
// Decide, but that arg may be called for several names.
func (p *Policy) DecideAnywhere(k Kind, name string, listed bool, arg func(name string) (text string, ok bool)) Verdict {
	best := Verdict{Code: UnknownAction}
	if int(k) >= Kinds {
		return best
	}
	arg = remembered(arg)
	for s := range p.states {
		b := p.lookup(State(s), k, name, listed)
		if b == nil || b.none {
			continue
		}
		switch v := b.decide(Verdict{}, State(s), arg); {
		case v.Allowed && !v.ByGlob:
			return Verdict{Allowed: true, Bound: true}
		case v.Allowed:
			best = Verdict{Allowed: true, Bound: true, ByGlob: true}
		case !best.Allowed:
			best = Verdict{Code: v.Code, Bound: true, ByGlob: v.ByGlob}
		}
	}
	return best
}

// remembered asks once for an argument that is asked for in a row.
func remembered(arg func(string) (string, bool)) func(string) (string, bool) {
	var last, text string
	var ok, asked bool
	return func(name string) (string, bool) {
		if arg != nil && (!asked || name != last) {
			text, ok = arg(name)
			last, asked = name, true
		}
		return text, ok
	}
}

// Renames reports whether p gives new names to states of policies before it.
func (p *Policy) Renames() bool { return len(p.renames) > 0 }
