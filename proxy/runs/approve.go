package runs

import (
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// ask enters a call that needs an approval, and asks for it; see [run.Run.Ask]. fresh tells that nobody has asked before.
func (r *Run) ask(c Call, q, held *approval.Question, maxQueue int) (a run.Admission, asked *approval.Question, fresh bool) {
	q.Done = make(chan struct{})
	a = r.enter(c, maxQueue, time.Now, func(d *run.Call, room int, now time.Time) (a run.Admission, e run.Effects) {
		if a, asked, e = r.core.Ask(d, q, held, room, now); asked != nil && r.ended.Load() { // who ends a run has not seen this one
			r.core.EndQuestions(func(other *approval.Question) bool { return other == asked })
		}
		return a, e
	})
	return a, asked, asked == q
}

// Asked is a question as operators see it.
type Asked struct {
	ID                string
	Info              Info
	Kind              policy.Kind
	Name, Case        string
	Rule              policy.Rule
	Arguments         []byte
	Registers         *register.View // nil: the policy has none
	Who, Message      string
	Of                policy.Approver
	State             approval.State
	Policy            *policy.Policy
	AskedAt, ExpireAt time.Time
}

func (r *Run) askedLocked(q *approval.Question) Asked {
	return Asked{ID: q.ID, Info: r.infoLocked(), Kind: q.Symbol.Kind, Name: q.Symbol.Name, Case: q.Symbol.Case, Rule: q.Rule, Arguments: q.Arguments,
		Registers: r.core.Registers(), Who: q.Who, Message: q.Message, Of: q.Of, State: q.State(), Policy: q.Policy, AskedAt: q.Asked, ExpireAt: q.Expires}
}

// Questions are those of the run that operators are asked and that are open, oldest first.
func (r *Run) Questions() (all []Asked) {
	r.mu.Lock()
	defer r.unlock()
	for _, q := range r.core.Questions(time.Now()) {
		if q.Of == policy.ByOperator {
			all = append(all, r.askedLocked(q))
		}
	}
	return all
}

// Question looks for a question that operators are asked, open or answered.
func (r *Run) Question(id string) (asked Asked, ok bool) {
	r.mu.Lock()
	defer r.unlock()
	if q := r.questionLocked(id, policy.ByOperator); q != nil {
		return r.askedLocked(q), true
	}
	return asked, false
}

func (r *Run) questionLocked(id string, of policy.Approver) *approval.Question {
	if q := r.core.Question(id, time.Now()); q != nil && q.Of == of {
		return q
	}
	return nil
}

// Answer answers a question that is open, and that was theirs to answer, where the run has not moved since seq; nil:
// whatever it has done. It returns the question as it was before. record is called before anything comes of it, under
// the run's lock.
func (r *Run) Answer(id string, by policy.Approver, answer approval.State, seq *uint64, record func(Asked)) (asked Asked, moved, ok bool) {
	r.mu.Lock()
	defer r.unlock()
	now := time.Now()
	r.core.Inspect(now)
	q := r.questionLocked(id, by)
	if q == nil {
		return asked, false, false
	}
	asked = r.askedLocked(q)
	if asked.State != approval.Open {
		return asked, false, false
	}
	if seq != nil && r.core.MovedSince(*seq) {
		return asked, true, false
	}
	record(asked)
	r.core.Answer(q, answer, now)
	return asked, false, true
}

// endQuestions ends what some have asked.
func (r *Run) endQuestions(of func(*approval.Question) bool) {
	r.mu.Lock()
	defer r.unlock()
	r.core.EndQuestions(of)
}

// Questions are those of all runs that operators are asked and that are open, in the order of their ids.
func (g *Registry) Questions() (all []Asked) {
	for _, r := range g.All() {
		all = append(all, r.Questions()...)
	}
	slices.SortFunc(all, func(a, b Asked) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// Question finds the run of a question that operators are asked, nil where there is none of that id.
func (g *Registry) Question(id string) *Run {
	for _, r := range g.All() {
		if _, ok := r.Question(id); ok {
			return r
		}
	}
	return nil
}
