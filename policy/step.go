package policy

import "fmt"

// Step is where one outcome led. It says what to record and where the run rests
// now; doing it is the caller's business.
type Step struct {
	// From and To are the configurations before and after. After a terminal edge
	// To is the initial one on Restart, and the entered state, complete, on Stop.
	From, To Configuration
	// Entered is the state that the edge leads to, which is what is recorded: on
	// Restart a completed run was in it though it never rested there.
	Entered State
	// Terminal is whether the edge completed the run.
	Terminal bool
	// Restarted is whether a new run began in this step.
	Restarted bool
	// Changed is whether To differs from From or a new run began.
	Changed bool
}

// Next says where outcome o of symbol s leads from c. It is pure. The symbol is
// one that Decide allowed in c: a symbol that is not bound there, no outcome, and
// a complete configuration are errors.
func (p *Policy) Next(c Configuration, s Symbol, o Outcome) (Step, error) {
	b := p.Binding(c, s.Kind, s.Name, true)
	if b == nil {
		return Step{}, fmt.Errorf("stepping %s %q: not bound in %s", s.Kind, s.Name, p.describe(c))
	}
	selected := b.Case(s.Case)
	if selected == nil {
		return Step{}, fmt.Errorf("stepping %s %q: no case %q in %s", s.Kind, s.Name, s.Case, p.describe(c))
	}
	if !o.valid() {
		return Step{}, fmt.Errorf("stepping %s %q: %v is no outcome", s.Kind, s.Name, o)
	}
	e := &selected.edges[o.index()]
	if !e.Changes(c.State) {
		return Step{From: c, To: c, Entered: c.State}, nil
	}
	t, err := p.fire(c.State, e.event)
	if err != nil {
		return Step{}, err
	}
	return p.arrive(c, t), nil
}

// arrive returns the step along an edge that changes the configuration.
func (p *Policy) arrive(c Configuration, t Target) Step {
	step := Step{From: c, Entered: t.In(c.State), Terminal: t.Terminal, Changed: true}
	switch {
	case !t.Terminal:
		step.To = Configuration{State: step.Entered}
	case p.OnComplete() == Restart:
		step.To, step.Restarted = p.Initial(), true
	default:
		step.To = Configuration{State: step.Entered, Complete: true}
	}
	return step
}

// describe names a configuration in an error.
func (p *Policy) describe(c Configuration) string {
	switch {
	case !p.has(c.State):
		return fmt.Sprintf("state %d, which the policy does not have", c.State)
	case c.Complete:
		return fmt.Sprintf("state %q, complete", p.states[c.State].Name)
	}
	return fmt.Sprintf("state %q", p.states[c.State].Name)
}

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
	s, ok := p.Heir(old.states[c.State].Name)
	switch {
	case !ok:
		return Configuration{}, false
	case c.Complete || !p.states[s].Terminal:
		return Configuration{State: s, Complete: c.Complete}, true
	}
	return p.arrive(Configuration{State: s}, Target{State: s, Terminal: true}).To, true
}

// Heir returns the state of p that takes the place of another policy's state: what p
// renames it to, else the one of the same name.
func (p *Policy) Heir(name string) (State, bool) {
	if s, ok := p.renames[name]; ok {
		return s, true
	}
	s, ok := p.byName[name]
	return s, ok
}

// Renames reports whether p gives new names to states of policies before it.
func (p *Policy) Renames() bool { return len(p.renames) > 0 }
