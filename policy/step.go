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
	e, err := p.edgesOf(c, s)
	if err != nil {
		return Step{}, err
	}
	if !o.valid() {
		return Step{}, fmt.Errorf("stepping %s %q: %v is no outcome", s.Kind, s.Name, o)
	}
	if !e.to[o.index()].changes(c.State) {
		return Step{From: c, To: c, Entered: c.State}, nil
	}
	t, err := p.fire(c.State, e.event[o.index()])
	if err != nil {
		return Step{}, err
	}
	return p.arrive(c, t), nil
}

// arrive is the step along an edge that changes the configuration.
func (p *Policy) arrive(c Configuration, t target) Step {
	step := Step{From: c, Entered: t.in(c.State), Terminal: t.terminal, Changed: true}
	switch {
	case !t.terminal:
		step.To = Configuration{State: step.Entered}
	case p.onComplete == Restart:
		step.To, step.Restarted = p.Initial(), true
	default:
		step.To = Configuration{State: step.Entered, Complete: true}
	}
	return step
}

// edgesOf finds the edges of a symbol that was allowed in c.
func (p *Policy) edgesOf(c Configuration, s Symbol) (*edges, error) {
	b := p.holds(c, s.Kind, s.Name, true)
	if b == nil {
		return nil, fmt.Errorf("stepping %s %q: not bound in %s", s.Kind, s.Name, p.describe(c))
	}
	if b.by == "" {
		return &b.edges, nil
	}
	e, ok := b.caseOf[s.Case]
	if !ok {
		return nil, fmt.Errorf("stepping %s %q: no case %q in %s", s.Kind, s.Name, s.Case, p.describe(c))
	}
	return e, nil
}

func (p *Policy) describe(c Configuration) string {
	switch {
	case !p.has(c.State):
		return fmt.Sprintf("state %d, which the policy does not have", c.State)
	case c.Complete:
		return fmt.Sprintf("state %q, complete", p.states[c.State].Name)
	}
	return fmt.Sprintf("state %q", p.states[c.State].Name)
}
