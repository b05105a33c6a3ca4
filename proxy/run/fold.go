package run

import (
	"maps"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
)

// fold is what a run's entries come to, and nothing else: where it stands, what it remembers, and which of its calls
// have begun and not ended. [Replay] makes a run of it. A run that lasts keeps the fold of all that it has made, durable
// or not, so that a [Checkpoint] says what Replay would make of the entries before it.
type fold struct {
	seq, moved uint64 // see [Run]
	since      int    // entries behind the last checkpoint
	finished   bool   // see [Run]
	stands     Standing
	memory     *memory
	open       map[uint64]begun // by the number of the entry by which they began
	answers    answers
}

// begun is a call that has begun, and not ended.
type begun struct {
	Entry
	taken *limit.Taken
	yes   *Entry // the answer that it has used up, for as long as that can be given back; nil: none that is kept
}

// newFold returns the fold of a run without entries; nil where no checkpoint is made of it.
func newFold(c *Config, now time.Time) *fold {
	if c.Checkpoint <= 0 {
		return nil
	}
	return foldFrom(c, now)
}

func foldFrom(c *Config, now time.Time) *fold {
	return &fold{stands: Standing{Policy: c.Policy, At: c.Policy.Initial()}, memory: newMemory(c, now), answers: answers{visit: visit{next: c.Policy}}}
}

// add takes the next entry into the fold. What it says is what a journal gives back of it.
func (f *fold) add(e *Entry, s *Shared) {
	f.seq++
	if e.remembers() {
		if f.since = 0; e.Type == Forked {
			f.moved = f.seq
		}
		return
	}
	f.since++
	if e.moves() {
		f.moved = f.seq
	}
	if !e.stays() {
		f.stands = e.To
	}
	told := *e
	told.Time = e.Time.Round(0) // without its reading of the monotonic clock
	if e.Type == Ended {        // in the visit that it may end
		f.count(&told)
	}
	f.memory = f.memory.after(&told, s)
	f.visit(&told)
	switch e.Type {
	case Answered:
		told.Seq, told.From, told.Call, told.pending = f.seq, e.To, e.Call.named(), nil
		f.answers.enter(&told)
	case Begun:
		if f.open == nil {
			f.open = make(map[uint64]begun)
		}
		told.Seq, told.From, told.Call, told.pending = f.seq, e.To, e.Call.named(), nil
		f.open[f.seq] = begun{told, f.count(&told), f.answers.use(e.Yes)}
	case Unsent:
		if b := f.open[e.Begun]; b.taken != nil && f.memory != nil {
			f.memory.counts.GiveBack(b.taken)
		}
		if b := f.open[e.Begun]; b.yes != nil && e.Yes != 0 {
			f.answers.given = append(f.answers.given, b.yes)
		}
		delete(f.open, e.Begun)
	case Ended:
		delete(f.open, e.Begun)
	}
	f.finished = f.finished || e.Type == Finished
	if e.Type == Reset || e.Type == Finished || e.Step.Restarted { // what is under way is of a run before this one
		for seq, b := range f.open {
			b.Turn, b.Unknown = false, nil
			f.open[seq] = b
		}
	}
}

// count counts the call that an entry tells of.
func (f *fold) count(e *Entry) *limit.Taken {
	if f.memory == nil {
		return nil
	}
	return f.memory.counts.Count(e.Time, e.Counted...)
}

// named is what an entry says of a call when it is read again: what it is called.
func (c *Call) named() *Call {
	if c == nil {
		return nil
	}
	name := Call{Request: Request{Kind: c.Kind, Name: c.Name}}
	name.Verdict.Symbol, name.Verdict.Rule = c.Verdict.Symbol, c.Verdict.Rule
	return &name
}

// calls are the numbers of those that are open, in order.
func (f *fold) calls() []uint64 { return slices.Sorted(maps.Keys(f.open)) }

// clone returns a fold that goes on by itself.
func (f *fold) clone(s *Shared) *fold {
	next := *f
	next.open = maps.Clone(f.open)
	next.answers.given = slices.Clone(f.answers.given)
	if f.memory == nil {
		return &next
	}
	calls := f.calls()
	counts, taken, _ := f.counts(calls).Counts() // they are those of counts
	memory := *f.memory
	memory.followed, memory.followsOf = "", standpoint{}
	memory.registers, memory.counts = f.memory.registers.Clone(s.MaxRegisters), counts
	next.memory = &memory
	for i, seq := range calls {
		b := next.open[seq]
		b.taken = taken[i]
		next.open[seq] = b
	}
	return &next
}

// counts are those of the fold, with what calls have taken of them.
func (f *fold) counts(calls []uint64) *limit.Snapshot {
	taken := make([]*limit.Taken, len(calls))
	for i, seq := range calls {
		taken[i] = f.open[seq].taken
	}
	s := f.memory.counts.Snapshot(taken...)
	return &s
}

// answers are the operators' that hold in the visit of a state that a fold is on. See [approval.Table], which is made of
// them again.
type answers struct {
	visit visit
	given []*Entry // in the order in which they count
}

// visit looks whether an entry has ended the visit that answers hold for: they end with it, and so do those that calls have
// used up.
func (f *fold) visit(e *Entry) {
	now := f.answers.visit
	now.policy, now.at = f.stands.Policy, f.stands.At
	if e.Type == Answered {
		now.next = e.Answer.Next
	}
	if e.Type == Moved || e.Type == Stranded || e.Type == Reset || e.Step.Changed {
		now.moves++
	}
	if now == f.answers.visit {
		return
	}
	f.answers = answers{visit: now}
	for seq, b := range f.open {
		b.yes = nil
		f.open[seq] = b
	}
}

// enter takes an answer that is given now, as the table does.
func (a *answers) enter(e *Entry) {
	denied := false
	a.given = slices.DeleteFunc(a.given, func(other *Entry) bool {
		same := other.Answer.Key == e.Answer.Key
		denied = denied || same && other.Answer.Said == approval.Denied
		return other.Answer.Said == approval.Allowed && (same && e.Answer.Said == approval.Denied || !e.Time.Before(other.Answer.Until))
	})
	if !denied && len(a.given) < approval.MaxKept {
		a.given = append(a.given, e)
	}
}

// use takes the yes that an entry of this number keeps; nil: it is there no more.
func (a *answers) use(number uint64) (yes *Entry) {
	for i, e := range a.given {
		if e.Seq == number && e.Answer.Said == approval.Allowed {
			a.given = slices.Delete(a.given, i, i+1)
			return e
		}
	}
	return nil
}

// asked are the questions of a run of which the fold tells, nil where nothing is answered.
func (f *fold) asked(shadow bool) *questions {
	if len(f.answers.given) == 0 {
		return nil
	}
	q := &questions{of: f.answers.visit}
	q.of.shadow = shadow
	q.Close() // so that it is another visit than that of answers that are read
	for _, e := range f.answers.given {
		q.Enter(&e.Answer.Answer, e.Seq, e.Time)
	}
	return q
}
