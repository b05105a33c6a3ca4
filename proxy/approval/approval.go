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

	state     State
	answering bool        // somebody has answered it, and that does not count yet
	until     time.Time   // of a yes that no call has used
	entry     uint64      // see Entry
	of        *Principals // whose room it takes
	visits    uint64      // of its table
}

// State is what has become of the question.
func (q *Question) State() State { return q.state }

// answered reports whether somebody has said yes or no.
func (q *Question) answered() bool { return q.state == Allowed || q.state == Denied }

// Entry is the number of the entry by which its answer is kept, 0 where it is not: see [Table.Enter].
func (q *Question) Entry() uint64 { return q.entry }

// Answering has nobody answer the question beside somebody whose answer does not count yet. It reports false where it is
// open no more, or somebody was before.
func (q *Question) Answering() bool {
	if !q.IsOpen() {
		return false
	}
	q.answering = true
	return true
}

// IsOpen reports whether the question can be answered.
func (q *Question) IsOpen() bool { return q.state == Open && !q.answering }

// Answer is a yes or a no that is kept, so that it holds when its table is made anew.
type Answer struct {
	Key
	ID       string    // of the question
	Said     State     // Allowed or Denied
	Until    time.Time // of a yes that no call uses; zero for a no
	By, Note string    // who has said so, and why
}

// Table is the questions of one visit of a state. The zero value is empty.
type Table struct {
	all    []*Question // oldest first
	done   []*Question // open no more, of which nobody was told
	visits uint64      // how often all were closed
}

// Find returns what is known of a call, nil for nothing: an answer, where there is one, whatever others are asked or were not
// told in time. An answer that has waited for too long is forgotten, but for that which the call itself has used before.
func (t *Table) Find(k Key, used *Question, now time.Time) (found *Question) {
	t.expire(used, now)
	for _, q := range t.all {
		switch {
		case q.Key != k:
		case q.answered():
			return q
		case found == nil:
			found = q
		}
	}
	return found
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

// Visit tells apart the times between which all was closed.
func (t *Table) Visit() uint64 { return t.visits }

// Enter has an answer count that is kept by an entry of this number, and was given then: for who asks the same now, or else
// for the next who does. A no holds whatever else was said.
func (t *Table) Enter(a *Answer, entry uint64, then time.Time) {
	t.expire(nil, then)
	denied, entered := false, false
	t.all = slices.DeleteFunc(t.all, func(q *Question) bool {
		switch {
		case q.Key != a.Key:
		case q.state == Open:
			q.until, q.entry, entered = a.Until, entry, true
			t.leave(q, a.Said)
		case q.state == Denied:
			denied = true
		default:
			return q.state == Unanswered || a.Said == Denied
		}
		return false
	})
	if entered || denied || !t.remembers(policy.ByOperator) {
		return
	}
	t.all = append(t.all, &Question{Key: a.Key, ID: a.ID, Of: policy.ByOperator, Patience: a.Until.Sub(then),
		state: a.Said, until: a.Until, entry: entry, visits: t.visits})
}

// UseKept is Use for the yes that an entry of this number keeps, and returns it; nil: it is there no more.
func (t *Table) UseKept(entry uint64) *Question {
	for _, q := range t.all {
		if q.entry == entry && q.state == Allowed {
			t.remove(q)
			return q
		}
	}
	return nil
}

// NotBefore has no yes hold for longer than it was given for, though a clock was set back since.
func (t *Table) NotBefore(now time.Time) {
	for _, q := range t.all {
		if most := now.Add(q.Patience); q.state == Allowed && q.until.After(most) {
			q.until = most
		}
	}
}

// remembers reports whether there is room for one more answer of theirs.
func (t *Table) remembers(by policy.Approver) bool {
	n := 0
	for _, q := range t.all {
		if q.Of == by && q.answered() {
			n++
		}
	}
	return n < MaxKept
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
	if q.visits == t.visits && q.state == Allowed && t.remembers(q.Of) {
		t.all = append(t.all, q)
	}
}

// Close ends all that is asked, and forgets all answers.
func (t *Table) Close() {
	t.closeOf(func(*Question) bool { return true })
	t.visits++
}

// CloseOf ends what is asked by some, who are gone, and forgets what was answered to them. What an operator has said of a
// call holds whoever asked.
func (t *Table) CloseOf(these func(*Question) bool) {
	t.closeOf(func(q *Question) bool {
		return these(q) && !(q.Of == policy.ByOperator && q.answered())
	})
	for i, q := range t.all {
		if these(q) {
			left := *q
			left.By, left.Done = nil, nil
			t.all[i] = &left
		}
	}
}

func (t *Table) closeOf(these func(*Question) bool) {
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
