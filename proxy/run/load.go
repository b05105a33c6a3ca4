package run

import (
	"iter"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Replay returns the run of which entries are told, from the first one on, or from a [Checkpoint] on, which has its
// number then, under the policy that is in force now. A call that has begun by them, and not ended, may have happened,
// or happen yet: it takes its on_unknown. What comes of that, and of the policy, are entries, which a run that lasts has
// made. A call of which something is [Left], since a task has come of it, has the turn again instead.
func Replay(c Config, entries iter.Seq[Entry], now time.Time) Run {
	c.Shared = c.Shared.withDefaults()
	f := foldFrom(&c, now)
	for e := range entries {
		if e.remembers() && f.seq == 0 && e.told != nil {
			f = e.told.clone(c.Shared)
			f.seq = max(e.Seq, 1) - 1
		}
		f.add(&e, c.Shared)
	}
	r := Run{Config: c, stands: f.stands, memory: f.memory, life: 1, finished: f.finished, seq: f.seq, moved: f.moved, moves: f.answers.visit.moves}
	r.asked, r.Kept = f.asked(c.Shadow), nil
	opened := f.open
	if c.Lasts {
		r.ahead = &ahead{}
		if c.Checkpoint > 0 {
			r.ahead.fold = f
			own := f.clone(c.Shared)
			r.memory, opened = own.memory, own.open
		}
	}
	r.notBefore(now)
	if r.asked != nil {
		r.questions().NotBefore(now)
	}
	r.resume(f.calls(), opened, c.Kept, now)
	if !r.moving() && r.holder == nil {
		r.catchUp(now)
	}
	return r
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

// resume ends the calls of which nobody has learned how they ended, but for that one whose end is still to come.
func (r *Run) resume(calls []uint64, open map[uint64]begun, left map[uint64]*Left, now time.Time) {
	anew := false
	for _, seq := range calls {
		b := open[seq]
		if l := left[seq]; l != nil && b.Turn && !anew && !r.finished && r.holder == nil && r.handBack(&b, b.taken, l) == nil {
			continue
		}
		e := Entry{Type: Ended, Time: now, Call: b.Call, Begun: seq, Outcome: policy.Unknown, Resumed: true, Shadow: b.Shadow, By: r.stands.Policy, To: r.stands}
		if !anew { // else it is of a run before this one
			e.Set = b.Unknown
		}
		if b.Turn && !anew {
			step, err := e.By.Next(r.stands.At, b.Call.Verdict.Symbol, policy.Unknown)
			if e.Step = step; err != nil || !r.arrive(&e) {
				e.Step = policy.Step{}
			}
		}
		r.record(e)
		anew = anew || e.Step.Restarted
	}
}

// Fresh reports whether nothing has become of a run since it began, or was begun anew, by its entries.
func Fresh(entries []Entry) bool {
	i := len(entries) - 1
	for i > 0 && (entries[i].Type == Declined || entries[i].Type == Stayed) {
		i--
	}
	return entries[i].Type == Began || entries[i].Type == Reset
}
