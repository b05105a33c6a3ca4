package run

import (
	"maps"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy/limit"
)

// fold is what a run's entries come to, and nothing else: where it stands, what it remembers, and which of its calls
// have begun and not ended. [Replay] makes a run of it. A run that lasts keeps the fold of all that it has made, durable
// or not, so that a [Checkpoint] says what Replay would make of the entries before it.
type fold struct {
	seq, moved uint64 // see [Run]
	since      int    // entries behind the last checkpoint
	stands     Standing
	memory     *memory
	open       map[uint64]begun // by the number of the entry by which they began
}

// begun is a call that has begun, and not ended.
type begun struct {
	Entry
	taken *limit.Taken
}

// newFold returns the fold of a run without entries; nil where no checkpoint is made of it.
func newFold(c *Config, now time.Time) *fold {
	if c.Checkpoint <= 0 {
		return nil
	}
	return foldFrom(c, now)
}

func foldFrom(c *Config, now time.Time) *fold {
	return &fold{stands: Standing{Policy: c.Policy, At: c.Policy.Initial()}, memory: newMemory(c, now)}
}

// add takes the next entry into the fold. What it says is what a journal gives back of it.
func (f *fold) add(e *Entry, s *Shared) {
	f.seq++
	if e.Type == Checkpoint {
		f.since = 0
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
	f.memory = f.memory.after(&told, s)
	switch e.Type {
	case Begun:
		if f.open == nil {
			f.open = make(map[uint64]begun)
		}
		told.Seq, told.From, told.Call, told.pending = f.seq, e.To, e.Call.named(), nil
		f.open[f.seq] = begun{told, f.count(&told)}
	case Unsent:
		if b := f.open[e.Begun]; b.taken != nil && f.memory != nil {
			f.memory.counts.GiveBack(b.taken)
		}
		delete(f.open, e.Begun)
	case Ended:
		delete(f.open, e.Begun)
		f.count(&told)
	}
	if e.Type == Reset || e.Step.Restarted { // what is under way is of a run before this one
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
