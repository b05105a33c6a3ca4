package run

import (
	"fmt"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
)

// Left is what is kept of a call that a task has come of and that has the turn, beside the entry by which it began: with
// both, [Replay] leaves it the turn, and its outcome is taken as if the run had never been read anew.
type Left struct {
	Rule    string     `json:"rule,omitzero"`
	Pattern string     `json:"pattern,omitzero"`
	Set     [][]change `json:"set,omitzero"` // what is set that hangs on no result, by the outcomes
}

// Left is what is to be kept of what is left of a call; nil: nothing, since it has not the turn of a run that lasts, or has
// ended, or what its result means hangs on what is not kept, such as its arguments.
func (r *Run) Left(c *Call) *Left {
	a := c.Verdict.Alternative
	if r.ahead == nil || r.holder != c || !r.task || c.begun == 0 || c.orphaned || a == nil || a.LateByCall() {
		return nil
	}
	l := &Left{Rule: c.Verdict.Rule.String(), Pattern: c.Verdict.Rule.Pattern}
	if reserved := c.held().reserved; reserved != nil {
		for _, o := range a.AllOutcomes() {
			l.Set = append(l.Set, written(reserved.Changes(o.Index())))
		}
	}
	return l
}

// Begun is the number of the entry by which the call began, 0 where there is none, or it has ended.
func (c *Call) Begun() uint64 { return c.begun }

// Again reports whether the call had begun before the run was read from its entries: no decision of now let it go.
func (c *Call) Again() bool { return c.again }

// handBack leaves the turn to what is kept of the call that had it. The error says why that cannot be: then nobody knows
// how the call ends.
func (r *Run) handBack(b *begun, taken *limit.Taken, l *Left) error {
	s := b.Call.Verdict.Symbol
	a := r.stands.Policy.AlternativeOf(r.stands.At, s)
	if a == nil || a.LateByCall() {
		return fmt.Errorf("the policy has no such way for %s %q", s.Kind, s.Name)
	}
	c := &Call{Request: Request{Kind: s.Kind, Name: s.Name}, Snapshot: Snapshot{Policy: r.stands.Policy, At: r.stands.At}, begun: b.Seq, told: b.Seq, again: true}
	c.Verdict = policy.Verdict{Allowed: true, Bound: true, Turn: true, Symbol: s, Alternative: a}
	if l.Rule != "" {
		rule, err := readRule(l.Rule, l.Pattern)
		if err != nil {
			return err
		}
		c.Verdict.Rule = rule
	}
	if r.memory != nil {
		edges := make([][]register.Change, len(l.Set))
		for i, set := range l.Set {
			var err error
			if edges[i], err = read(set, r.stands.Policy); err != nil {
				return err
			}
		}
		reserved, err := r.memory.registers.Reserve(edges)
		if err != nil {
			return err
		}
		c.has = &holdings{memory: r.memory, reserved: reserved}
		if taken != nil {
			c.has.counted = &counted{of: r.memory.counts, taken: taken}
		}
	}
	if a.Late() {
		c.holdings().facts = &guard.Call{Name: s.Name}
	}
	r.holder, r.task = c, true
	return nil
}
