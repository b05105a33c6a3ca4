package run

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
)

// questions are those of the visit that the run is on.
type questions struct {
	approval.Table
	of     visit
	unsaid bool // a visit has ended of which no entry tells, since the run stands where it stood
}

// visit tells apart the times that a run is in a state, and what it is decided by there.
type visit struct {
	policy *policy.Policy // the run's own
	next   *policy.Policy // that it goes by when its turn is free; its own where it stays
	at     policy.Configuration
	moves  uint32
	shadow bool
}

// approved is the yes that a call has used, and where it goes if the call does not.
type approved struct {
	question *approval.Question
	table    *approval.Table
}

func (a *approved) giveBack() {
	a.table.GiveBack(a.question)
	*a = approved{}
}

// questions returns the questions of this visit: leaving a state ends what was asked in it, and so does a reload, which
// has the call decided by another policy though the run may have to wait for its turn.
func (r *Run) questions() *approval.Table { return r.questionsOf(r.next()) }

// next is the policy that the run goes by when its turn is free.
func (r *Run) next() *policy.Policy {
	if r.Policy.OnReload() == policy.ReloadPin {
		return r.stands.Policy
	}
	return r.Policy
}

// endVisit ends what was asked by the policy, or in the mode, before.
func (r *Run) endVisit() {
	if r.asked == nil {
		return
	}
	was := r.asked.Visit()
	r.asked.unsaid = r.questions().Visit() != was && r.ahead != nil || r.asked.unsaid
}

func (r *Run) questionsOf(next *policy.Policy) *approval.Table {
	if r.asked == nil {
		r.asked = &questions{}
	}
	if now := (visit{r.stands.Policy, next, r.stands.At, r.moves, r.Shadow}); r.asked.of != now {
		r.asked.Close()
		r.asked.of = now
	}
	return &r.asked.Table
}

// Why a call is not approved, and what its client is told of that.
var (
	errRefused    = errors.New("it was not approved, and is not as long as the run is in this state")
	errUnanswered = errors.New("nobody has approved it in time. Call it again to ask anew")
	errLong       = errors.New("its arguments are longer than 64 KiB, which nobody would look through")
)

// approve uses the yes that a call needs. The code says why it cannot go:
// [policy.ApprovalPending] where somebody is to be asked. used is the yes that it had before.
func (r *Run) approve(c *Call, used *approval.Question, now time.Time) policy.Code {
	k, fault := c.approvalKey()
	if fault != nil {
		unclear, _ := errors.AsType[*guard.Error](fault)
		c.Unclear = c.Unclear || unclear != nil && unclear.Reason == guard.UnclearKey
		return c.unapproved(fault)
	}
	t := r.questions()
	q := t.Find(k, used, now)
	switch {
	case q == nil || q.State() == approval.Open:
		return policy.ApprovalPending
	case q.State() == approval.Denied:
		return c.unapproved(errRefused)
	}
	t.Use(q)
	if q.State() != approval.Allowed {
		return c.unapproved(errUnanswered)
	}
	c.holdings().approved = approved{q, t}
	return policy.CodeNone
}

func (c *Call) unapproved(why error) policy.Code {
	c.Verdict.Unmet = &policy.Unmet{Fault: why}
	if why == errRefused || why == errUnanswered || why == errLong {
		c.Verdict.Unmet.Because = []string{why.Error() + "."}
	}
	return policy.ApprovalDenied
}

// approvalKey says what a call is as far as somebody approves it.
func (c *Call) approvalKey() (k approval.Key, err error) {
	var arguments []byte
	if c.Arguments != nil {
		arguments = c.Arguments.JSON()
	}
	if len(arguments) > approval.MaxArguments {
		return k, errLong
	}
	k = approval.Key{Policy: c.Snapshot.Policy, Rule: c.Verdict.Rule, Symbol: c.Verdict.Symbol, Principal: c.principal()}
	k.Digest, err = guard.Digest(arguments)
	return k, err
}

// Ask enters a call as [Run.Enter] does, and where it needs an approval that nobody has given, asks for it with q, of
// which the caller has set what the run does not know, or joins those who have asked for the same call before: then it
// returns the question. held is the one that it waited for before, nil for none.
func (r *Run) Ask(c *Call, q, held *approval.Question, room int, now time.Time) (a Admission, asked *approval.Question, e Effects) {
	if a, e = r.Enter(c, room, now); a != ApprovalWanted {
		return a, nil, e
	}
	if held != nil && held.State() == approval.Unanswered {
		c.refuse(c.unapproved(errUnanswered))
		return Refused, nil, e
	}
	k, _ := c.approvalKey() // it has one, or would be refused
	t := r.questions()
	if asked = t.Find(k, nil, now); asked != nil {
		return a, asked, e
	}
	wanted := c.Verdict.Alternative.Approve
	q.Key, q.Of, q.Message, q.Asked, q.Patience = k, wanted.By, wanted.Message, now, time.Duration(wanted.Seconds)*time.Second
	if expires := now.Add(q.Patience); q.Expires.IsZero() || expires.Before(q.Expires) {
		q.Expires = expires
	}
	if c.Arguments != nil {
		q.Arguments = bytes.Clone(c.Arguments.JSON())
	}
	if !t.Ask(q, r.Asking, now) {
		c.refuse(policy.Busy)
		return Crowded, nil, e
	}
	return a, q, e
}

// Questions are the questions that are open, oldest first.
func (r *Run) Questions(now time.Time) []*approval.Question {
	if r.asked == nil {
		return nil
	}
	return slices.DeleteFunc(r.questions().Open(now), func(q *approval.Question) bool { return !q.IsOpen() })
}

// Question returns the question of an id, nil where there is none any more.
func (r *Run) Question(id string, now time.Time) *approval.Question {
	if r.asked == nil {
		return nil
	}
	return r.questions().Get(id, now)
}

// EndQuestions ends what some have asked, who are gone: see [approval.Table.CloseOf].
func (r *Run) EndQuestions(of func(*approval.Question) bool) {
	if r.asked != nil {
		r.asked.CloseOf(of)
	}
}
