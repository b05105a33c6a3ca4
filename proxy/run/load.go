package run

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
)

// Replay returns the run of which entries are told, from the first one on, under the policy that is in force now. A
// call that has begun by them, and not ended, may have happened, or happen yet: it takes its on_unknown. What comes
// of that, and of the policy, are entries, which a run that lasts has made.
func Replay(c Config, entries iter.Seq[Entry], now time.Time) Run {
	lasts := c.Lasts
	c.Lasts = false
	r := New(c, now)
	open := make(map[uint64]begun)
	for e := range entries {
		r.seq++
		if e.Seq = r.seq; e.moves() {
			r.moved = r.seq
		}
		r.apply(&e)
		switch {
		case e.Type == Begun:
			open[e.Seq] = begun{e, r.take(&e)}
		case e.Type == Unsent:
			if b := open[e.Begun]; b.taken != nil && r.memory != nil {
				r.memory.counts.GiveBack(b.taken)
			}
			delete(open, e.Begun)
		case e.Type == Ended:
			delete(open, e.Begun)
			r.take(&e)
		case e.Type == Reset:
			for seq, b := range open {
				b.Turn, b.Unknown = false, nil
				open[seq] = b
			}
		}
	}
	r.notBefore(now)
	if r.Lasts = lasts; lasts {
		r.ahead = &ahead{}
	}
	for _, seq := range slices.Sorted(maps.Keys(open)) {
		b := open[seq]
		r.resume(&b.Entry, now)
	}
	if !r.moving() {
		r.catchUp(now)
	}
	return r
}

// begun is a call that has no end by the entries that were read.
type begun struct {
	Entry
	taken *limit.Taken
}

// take counts the call that an entry tells of.
func (r *Run) take(e *Entry) *limit.Taken {
	if len(e.Counted) == 0 || r.memory == nil {
		return nil
	}
	taken, _ := r.memory.counts.Take(e.Time, e.Counted...)
	return taken
}

// notBefore has what lies in the future be now: a clock was set back since it was written.
func (r *Run) notBefore(now time.Time) {
	if m := r.memory; m != nil {
		if m.began.After(now) {
			m.began = now
		}
		if m.entered.After(now) {
			m.entered = now
		}
	}
	if s := r.stands; s.Stranded.After(now) {
		s.Stranded = now
		r.stands = s
	}
}

// resume ends a call of which nobody has learned how it ended.
func (r *Run) resume(b *Entry, now time.Time) {
	e := Entry{Type: Ended, Time: now, Call: b.Call, Begun: b.Seq, Outcome: policy.Unknown, Resumed: true, By: r.stands.Policy, Set: b.Unknown, To: r.stands}
	if b.Turn {
		step, err := e.By.Next(r.stands.At, b.Call.Verdict.Symbol, policy.Unknown)
		if e.Step = step; err != nil || !r.arrive(&e) {
			e.Step = policy.Step{}
		}
	}
	r.record(e)
}
