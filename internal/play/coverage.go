package play

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Coverage is what tests of a policy have seen of it: its states, its edges, each guard true and
// false, and each approval given and refused. What stands once in the file, and holds in several states of a part, is one.
type Coverage struct {
	policy *policy.Policy
	items  map[item]bool // seen
}

// item is one thing that can be covered.
type item struct {
	place policy.Place
	what  string
}

// NewCoverage returns a coverage of nothing.
func NewCoverage(p *policy.Policy) *Coverage {
	c := &Coverage{policy: p, items: map[item]bool{}}
	for i, s := range p.States() {
		c.items[item{s.Place, "state " + s.Name}] = false
		if p.After(policy.State(i)) != nil {
			c.items[clockItem(p, policy.State(i))] = false
		}
	}
	for b := range p.Bindings() {
		for i := range b.Cases {
			for j := range b.Cases[i].Alternatives {
				a := &b.Cases[i].Alternatives[j]
				for _, o := range edges(b, a) {
					c.items[edgeItem(b, &b.Cases[i], j, o)] = false
				}
				if a.Approve != nil {
					c.items[approvalItem(a.Approve, approval.Allowed)], c.items[approvalItem(a.Approve, approval.Denied)] = false, false
				}
				for _, g := range a.Guards {
					c.items[guardItem(g, true)], c.items[guardItem(g, false)] = false, false
				}
			}
		}
	}
	return c
}

// edges are the outcomes of an alternative of which the file says something; success alone
// where it says nothing, and of a signal.
func edges(b *policy.Binding, a *policy.Alternative) (out []policy.Outcome) {
	if b.Kind == policy.Signal {
		return []policy.Outcome{policy.Success}
	}
	for _, o := range a.AllOutcomes() {
		if a.Says(o) || o > policy.Unknown {
			out = append(out, o)
		}
	}
	if len(out) == 0 {
		out = append(out, policy.Success)
	}
	return out
}

func edgeItem(b *policy.Binding, c *policy.Case, alternative int, o policy.Outcome) item {
	what := b.Kind.String() + " " + b.Pattern
	if b.By != "" {
		what += fmt.Sprintf(" [%s=%s]", b.By, c.Name)
	}
	if len(c.Alternatives) > 1 {
		what += fmt.Sprintf(" [%d]", alternative+1)
	}
	place := c.Alternatives[alternative].Place
	if place.Line == 0 {
		place = b.Place()
	}
	switch a := &c.Alternatives[alternative]; {
	case b.Kind == policy.Signal:
	case o <= policy.Unknown && uniform(a):
		what += " on any"
	default:
		what += " on " + a.OutcomeName(o)
	}
	return item{place, what}
}

// uniform reports whether one edge is said of all outcomes that have no name.
func uniform(a *policy.Alternative) bool {
	of := func(o policy.Outcome) (p policy.Place, n int) {
		if set := a.Sets(o); len(set) > 0 {
			return set[0].Place, len(set)
		}
		return p, 0
	}
	place, n := of(policy.Success)
	for _, o := range policy.AllOutcomes {
		if at, m := of(o); !a.Says(o) || a.Leads(o) != a.Leads(policy.Success) || at != place || m != n {
			return false
		}
	}
	return true
}

func guardItem(g policy.Guard, holds bool) item {
	return item{g.Place, fmt.Sprintf("when %s: %v", g, holds)}
}

// approvalItem is an answer of who has to approve.
func approvalItem(a *policy.Approve, said approval.State) item {
	return item{a.Place, "approve: " + sayings[said-approval.Allowed]}
}

// clockItem is the clock of a state.
func clockItem(p *policy.Policy, s policy.State) (x item) {
	if after := p.After(s); after != nil {
		x = item{after.Rule.Place(), "after in " + p.StateName(s)}
	}
	return x
}

// see notes what can be covered, and no more.
func (c *Coverage) see(x item) {
	if _, ok := c.items[x]; ok {
		c.items[x] = true
	}
}

func (c *Coverage) enter(s policy.State) {
	st := c.policy.State(s)
	c.see(item{st.Place, "state " + st.Name})
}

// symbolOf returns the binding and the case by which a call was decided, nil where there are none.
func symbolOf(c *run.Call) (*policy.Binding, *policy.Case) {
	b := c.Snapshot.Policy.Binding(c.Snapshot.At, c.Kind, c.Name, c.Listed)
	if b == nil || !c.Verdict.Bound {
		return nil, nil
	}
	if b.By == "" {
		return b, &b.Cases[0]
	}
	return b, b.Case(c.Verdict.Symbol.Case)
}

// decided notes which guards have decided a call, and how.
func (c *Coverage) decided(call *run.Call, facts *guard.Call) {
	_, selected := symbolOf(call)
	if selected == nil || selected.None {
		return
	}
	for _, w := range selected.Ways(&policy.Request{Who: call.Who, From: call.From, Facts: facts}) {
		for i, g := range w.Alternative.Guards {
			if looks := w.Guards[i]; looks == policy.Holds || looks == policy.HoldsNot {
				c.see(guardItem(g, looks == policy.Holds))
			}
		}
	}
}

// ended notes an outcome.
func (c *Coverage) ended(call *run.Call, o policy.Outcome) {
	if b, selected := symbolOf(call); selected != nil {
		c.see(edgeItem(b, selected, int(call.Verdict.Symbol.Alternative), o))
	}
}

// Counts returns how much there is, and how much was seen of it.
func (c *Coverage) Counts() (seen, all int) {
	for _, ok := range c.items {
		if ok {
			seen++
		}
	}
	return seen, len(c.items)
}

// Percent is how much was seen; 100 where there is nothing.
func (c *Coverage) Percent() float64 {
	seen, all := c.Counts()
	if all == 0 {
		return 100
	}
	return 100 * float64(seen) / float64(all)
}

// Missing returns what was not seen, in the file's order, each as FILE:LINE:COLUMN: WHAT.
func (c *Coverage) Missing() (out []string) {
	var missing []item
	for x, ok := range c.items {
		if !ok {
			missing = append(missing, x)
		}
	}
	slices.SortFunc(missing, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.place.File, b.place.File), cmp.Compare(a.place.Line, b.place.Line),
			cmp.Compare(a.place.Column, b.place.Column), cmp.Compare(a.what, b.what))
	})
	for _, x := range missing {
		out = append(out, fmt.Sprintf("%s:%d:%d: %s", cmp.Or(x.place.File, c.policy.File()), x.place.Line, x.place.Column, x.what))
	}
	return out
}
