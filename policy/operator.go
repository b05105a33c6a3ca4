package policy

import "github.com/fsm-proxy/fsm-proxy/policy/guard"

// Sendable is a signal that an operator may send, and where it leads.
type Sendable struct {
	Name, Says string
	From       Sender // who else may send it
	To         string // the state
	Completes  bool   // the run
}

// Sendable returns the signals that an operator may send in c: the state's own, and then everywhere's. facts are as for
// [Request].
func (p *Policy) Sendable(c Configuration, facts *guard.Call) (all []Sendable) {
	if c.Complete || !p.has(c.State) {
		return nil
	}
	for b := range p.Effective(c.State) {
		if b.Kind != Signal || b.None {
			continue
		}
		q := Request{Kind: Signal, Name: b.Pattern, From: Operator}
		if facts != nil {
			named := *facts
			named.Name, q.Facts = b.Pattern, &named
		}
		if v := p.Decide(c, &q); v.Allowed {
			to := v.Alternative.Leads(Success)
			all = append(all, Sendable{Name: b.Pattern, Says: b.Says, From: b.From, To: p.StateName(to.In(c.State)), Completes: to.Terminal})
		}
	}
	return all
}
