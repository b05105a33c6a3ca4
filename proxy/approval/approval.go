// Package approval is the questions of one run whether calls may go: asked, answered, and used up by one call each.
// It is pure: it holds no lock but that of [Principals], and time is the caller's.
package approval

import (
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Bounds of what a run asks.
const (
	MaxOpen      = 8        // questions of a run that nobody has answered
	MaxKept      = 256      // those, and answers that are remembered
	MaxArguments = 64 << 10 // bytes: what is longer nobody reads
)

// Key is what a question is about: a call is the same call if its key is.
type Key struct {
	Policy    *policy.Policy // that binds it
	Rule      policy.Rule
	Symbol    policy.Symbol
	Principal string // on whose behalf it comes; "": nobody is known
	Digest    string // of its arguments
}

// State is what has become of a question. The zero value is Open.
type State uint8

// The states.
const (
	Open       State = iota
	Allowed          // one call may go
	Denied           // none, as long as the question is remembered
	Unanswered       // in time, or at all: who was asked has put it off
	Closed           // nobody asks any more
)

// Question is one question. What the caller sets never changes; the rest is [Table]'s.
type Question struct {
	Key
	ID        string
	Of        policy.Approver // who is asked
	Message   string
	Arguments []byte // as they were sent
	Who       string // for people: on whose behalf the call comes
	Run       string // for people: in which run
	By        any    // who asks: a question ends with them
	Asked     time.Time
	Expires   time.Time     // when it is answered by nobody
	Patience  time.Duration // for how long a yes waits for its call
	Done      chan struct{} // the caller's: closed when the question is open no more

	state  State
	until  time.Time   // of a yes that no call has used
	of     *Principals // whose room it takes
	visits uint64      // of its table
}

// State is what has become of the question.
func (q *Question) State() State { return q.state }

// Table is the questions of one visit of a state. The zero value is empty.
type Table struct {
	all    []*Question // oldest first
	done   []*Question // open no more, of which nobody was told
	visits uint64      // how often all were closed
}

// Find returns what is known of a call, nil for nothing. An answer that has waited for too long is forgotten, but for
// that which the call itself has used before.
func (t *Table) Find(k Key, used *Question, now time.Time) *Question {
	t.expire(used, now)
	for _, q := range t.all {
		if q.Key == k {
			return q
		}
	}
	return nil
}

// Open returns the questions that are open, oldest first.
func (t *Table) Open(now time.Time) (open []*Question) {
	t.expire(nil, now)
	for _, q := range t.all {
		if q.state == Open {
			open = append(open, q)
		}
	}
	return open
}

// Get returns the question of an id, nil where there is none.
func (t *Table) Get(id string, now time.Time) *Question {
	t.expire(nil, now)
	for _, q := range t.all {
		if q.ID == id {
			return q
		}
	}
	return nil
}

// Ask enters a question, and reports whether there is room for it.
func (t *Table) Ask(q *Question, of *Principals, now time.Time) bool {
	if len(t.Open(now)) >= MaxOpen || len(t.all) >= MaxKept && !t.forgetUnanswered() || !of.enter(q, now) {
		return false
	}
	q.of, q.visits = of, t.visits
	t.all = append(t.all, q)
	return true
}

// Answer answers a question that is open: Allowed, Denied or Unanswered.
func (t *Table) Answer(q *Question, answer State, now time.Time) {
	if q.state != Open {
		return
	}
	q.until = now.Add(q.Patience)
	t.leave(q, answer)
}

// Use takes a yes, or a question that nobody has answered in time, of which a call was told: it is there no more.
func (t *Table) Use(q *Question) { t.remove(q) }

// GiveBack undoes Use for a yes whose call was not sent.
func (t *Table) GiveBack(q *Question) {
	if q.visits == t.visits && q.state == Allowed && len(t.all) < MaxKept {
		t.all = append(t.all, q)
	}
}

// Close ends all that is asked, and forgets all answers.
func (t *Table) Close() {
	t.CloseOf(func(*Question) bool { return true })
	t.visits++
}

// CloseOf ends what is asked, and forgets the answers, of some.
func (t *Table) CloseOf(these func(*Question) bool) {
	t.all = slices.DeleteFunc(t.all, func(q *Question) bool {
		if !these(q) {
			return false
		}
		if q.state == Open {
			t.leave(q, Closed)
		}
		return true
	})
}

// Told returns the questions that are open no more since it was last called.
func (t *Table) Told() (done []*Question) {
	done, t.done = t.done, nil
	return done
}

// expire ends what has waited for too long, but for used.
func (t *Table) expire(used *Question, now time.Time) {
	t.all = slices.DeleteFunc(t.all, func(q *Question) bool {
		if q.state == Open && !now.Before(q.Expires) {
			t.leave(q, Unanswered)
		}
		return q.state == Allowed && q != used && !now.Before(q.until)
	})
}

// leave has a question be open no more.
func (t *Table) leave(q *Question, to State) {
	q.state, q.Arguments = to, nil
	q.of.leave(q)
	t.done = append(t.done, q)
}

// forgetUnanswered forgets the oldest question that nobody has answered in time, and reports whether there was one.
func (t *Table) forgetUnanswered() bool {
	i := slices.IndexFunc(t.all, func(q *Question) bool { return q.state == Unanswered })
	if i < 0 {
		return false
	}
	t.all = slices.Delete(t.all, i, i+1)
	return true
}

func (t *Table) remove(q *Question) {
	t.all = slices.DeleteFunc(t.all, func(other *Question) bool { return other == q })
}
