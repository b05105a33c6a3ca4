package operator

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// Approvals are the calls that wait for a yes or a no, in the order of their ids.
func (d *Desk) Approvals() (all []runs.Asked) {
	for _, r := range d.Runs.All() {
		all = append(all, r.Questions()...)
	}
	slices.SortFunc(all, func(a, b runs.Asked) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// asking finds the run that asks by an id, nil where none does, and what it asks.
func (d *Desk) asking(id string) (*runs.Run, runs.Asked) {
	for _, r := range d.Runs.All() {
		if asked, ok := r.Question(id); ok {
			return r, asked
		}
	}
	return nil, runs.Asked{}
}

// Asked reports whether a run asks by an id, or has its answer still.
func (d *Desk) Asked(id string) bool {
	r, _ := d.asking(id)
	return r != nil
}

// Approval is the call of an id, where it waits still.
func (d *Desk) Approval(id string) (runs.Asked, bool) {
	r, asked := d.asking(id)
	return asked, r != nil && asked.State == approval.Open
}

// Answer is what an operator says of a call that waits.
type Answer struct {
	ID   string
	Said approval.State // Allowed, Denied or, of a client, Unanswered
	Note string
	Seq  *uint64      // of the last entry of the run that the operator knows; nil: whatever there is
	From observe.Peer // the operator, or the client
}

// Approve answers whether a call may go that waits for that, and returns it as it was asked. The error is a [*Refused].
func (d *Desk) Approve(ctx context.Context, a Answer) (runs.Asked, error) {
	if d.Ending.Err() != nil {
		return runs.Asked{}, &Refused{Why: Ending}
	}
	if auditor := d.Telemetry.Auditor; auditor != nil {
		auditor.Await(ctx) // until it can be recorded
	}
	r, _ := d.asking(a.ID)
	if r == nil {
		return runs.Asked{}, &Refused{Why: NoApproval}
	}
	asked, taken := d.answer(r, policy.ByOperator, &a)
	no := &Refused{}
	switch taken {
	case runs.Counts:
		return asked, nil
	case runs.HasMoved:
		no.Why = Moved
	case runs.NotKept:
		no.Why = NotKept
	case runs.PerhapsLater:
		no.Why = PerhapsKept
	default:
		if r.Lost() {
			return asked, lost()
		}
		no.Why = Answered
	}
	d.recordAnswer(&a, asked, 0, observe.Fault{Untaken: no.String()})
	d.logAnswer(&a, asked, no.String())
	no.At = standing(r)
	return asked, no
}

// ApproveByClient takes what a client says of a call of its own that waits, in its run.
func (d *Desk) ApproveByClient(r *runs.Run, a Answer) { d.answer(r, policy.ByClient, &a) }

// answer has a run take an answer, and tells of one that it has taken.
func (d *Desk) answer(r *runs.Run, of policy.Approver, a *Answer) (runs.Asked, runs.Taken) {
	said := run.Reply{Answer: a.Said, By: a.From.Principal.Subject, Note: a.Note}
	asked, taken := r.Answer(runs.Said{ID: a.ID, Of: of, Seq: a.Seq, Reply: said}, func(asked runs.Asked, seq uint64) { d.recordAnswer(a, asked, seq, a.fault()) })
	if taken == runs.Counts {
		d.logAnswer(a, asked, "")
	}
	return asked, taken
}

// String is the answer in a word.
func (a *Answer) String() string {
	switch a.Said {
	case approval.Allowed:
		return "allow"
	case approval.Denied:
		return "deny"
	}
	return "none"
}

// fault is what the audit has of an answer that was taken: a no is why a call does not go.
func (a *Answer) fault() (f observe.Fault) {
	if a.Said != approval.Allowed {
		f.Code = policy.ApprovalDenied
	}
	return f
}

// recordAnswer records who has said what of which call, and why. It does not block.
func (d *Desk) recordAnswer(a *Answer, asked runs.Asked, seq uint64, fault observe.Fault) {
	if auditor := d.Telemetry.Auditor; auditor != nil {
		auditor.Decided(observe.Decision{Peer: a.From, Message: &wire.Message{}, Named: true, Kind: asked.Kind, Name: asked.Name, Run: cmp.Or(asked.Info.Kept, asked.Info.Name), Seq: seq,
			State: asked.Info.State, Policy: asked.Policy, Rule: asked.Rule, Case: asked.Case, Note: a.Note, Approval: a.ID, Said: a.String(), Fault: fault})
	}
}

// logAnswer says the same in the log; untaken is why it came to nothing, "" where it did not.
func (d *Desk) logAnswer(a *Answer, asked runs.Asked, untaken string) {
	if d.Log.IsInfo() {
		d.Log.Info("approval", a.From.About([]any{"run", asked.Info.Name, "approval", wire.Clip(a.ID), "said", a.String(), "untaken", untaken,
			asked.Kind.String(), wire.Clip(asked.Name), "note", observe.Escaped(a.Note), "rule", asked.Rule.String()})...)
	}
}
