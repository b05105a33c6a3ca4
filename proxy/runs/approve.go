package runs

import (
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

// Said is an answer to a question.
type Said struct {
	ID  string
	Of  policy.Approver // whose answer it is
	Seq *uint64         // the run may not have moved since; nil: whatever it has done
	run.Reply
}

// Taken is what becomes of an answer. The zero value is NotOpen.
type Taken uint8

// What becomes of one.
const (
	NotOpen      Taken = iota // there is no such question, or somebody has answered it, or its time has run out
	HasMoved                  // the run has, or is about to
	Counts                    // and is kept, where that is to be
	NotKept                   // it cannot be written now: nothing comes of it
	PerhapsLater              // it is not written in time: it counts when it is, if its question was not ended by then
)

// Answer answers a question that is open, and that was theirs to answer. It returns the question as it was before. record
// is called before anything comes of it, under the run's lock, with the number of the entry that keeps it; 0: none does.
func (r *Run) Answer(s Said, record func(Asked, uint64)) (asked Asked, t Taken) {
	asked, t, w := r.answer(s, record)
	if len(w.pending) > 0 {
		if _, err := r.within(w); err != nil {
			t = PerhapsLater
		}
	}
	return asked, t
}

// answer is Answer without waiting: w is what has to be durable first.
func (r *Run) answer(s Said, record func(Asked, uint64)) (asked Asked, t Taken, w written) {
	keeps := r.kept != nil && s.Of == policy.ByOperator
	r.mu.Lock()
	defer r.unlock()
	now := time.Now()
	_, e := r.core.Inspect(now)
	r.tell(e.Entries)
	q := r.questionLocked(s.ID, s.Of)
	if q == nil {
		return asked, NotOpen, w
	}
	asked = r.askedLocked(q)
	switch {
	case !q.IsOpen():
		return asked, NotOpen, w
	case s.Seq != nil && r.core.MovedSince(*s.Seq):
		return asked, HasMoved, w
	case keeps && r.of.cfg.Store.Down() != nil:
		return asked, NotKept, w
	}
	p, ok := r.core.Answer(q, s.Reply, now)
	if !ok {
		return asked, HasMoved, w
	}
	if p == nil {
		record(asked, 0)
		return asked, Counts, w
	}
	record(asked, p.Seq)
	w = r.writeLocked()
	return asked, Counts, w
}

// endQuestions ends what some have asked.
func (r *Run) endQuestions(of func(*approval.Question) bool) {
	r.mu.Lock()
	defer r.unlock()
	r.core.EndQuestions(of)
}
