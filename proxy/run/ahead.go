package run

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
)

// What becomes of a run that lasts is written ahead (ARIES, Mohan et al. 1992): an entry is made, it is written, and
// when it is durable it is applied, in the order of their numbers. Until then the run stands where it stood, for
// whoever asks, and what would move it elsewhere waits for the turn: the call whose entry it is has that still, and
// where none has, nobody gets it.

// ahead is what a run that lasts has made, and is not applied yet.
type ahead struct {
	made    []Entry    // since they were taken last, to be written
	entries []*Pending // that are not applied yet, in order
	moving  int        // how many of them move the run
	resets  int        // how many of those begin it anew
	nobody  *Call      // has the turn while they do, and no call has it; nil: never yet
	fold    *fold      // of all that were made; nil: no checkpoint is made of it

	declined declined
}

// ErrUnwritten is for what a run that lasts has made, and that cannot be written, or not in time.
var ErrUnwritten = errors.New("it cannot be written now (--store)")

// ErrLeft is an [ErrUnwritten] of a run for which this process does not act any more: another one has it, or may have it soon.
var ErrLeft = fmt.Errorf("%w: another process has the run, or may have it soon", ErrUnwritten)

// write takes an entry that is to be written. Where a reload, or a call in shadow, has taken the run, it stands already;
// but a call in shadow does not overtake what is to be set.
func (a *ahead) write(r *Run, e Entry) Entry {
	if e.Type == Declined {
		a.decline(e)
		return e
	}
	a.closeDeclined()
	if e.Type == Stayed || e.Type == Began || e.Type == Forked || e.Type == Moved || e.Type == Stranded || e.Type == Finished || e.Type == Reset && r.reset || e.Shadow && e.Step.Changed && !a.sets() {
		for _, p := range a.entries { // what was to be set before is forgotten by then, or what of it the policy does not have
			if p.Set = fitting(p.Set, e.To.Policy); e.Type == Reset || e.Step.Restarted {
				p.Set = nil
			}
		}
		a.made = append(a.made, e)
		r.apply(&e)
		return e
	}
	p := &Pending{Entry: e}
	p.pending, e.pending = p, p
	a.made = append(a.made, e)
	a.entries = append(a.entries, p)
	if e.Set != nil && r.memory != nil {
		p.room, _ = r.memory.registers.Reserve([][]register.Change{e.Set}) // what settled it has just had it
	}
	if e.stays() {
		return e
	}
	a.moving++
	to := e.To
	r.recorded = &to
	if r.holder == nil {
		r.holder = a.keeper()
	}
	return e
}

// sets reports whether an entry that is not applied yet sets something.
func (a *ahead) sets() bool {
	return slices.ContainsFunc(a.entries, func(p *Pending) bool { return p.Set != nil })
}

// anew reports whether an entry that is not applied yet begins the run anew.
func (a *ahead) anew() bool {
	return a.resets > 0 || slices.ContainsFunc(a.entries, func(p *Pending) bool { return p.Step.Restarted })
}

// leaves reports whether what is not applied yet takes the run to another policy, if only for a while.
func (a *ahead) leaves(r *Run) bool {
	return r.asRecorded().Policy != r.stands.Policy ||
		slices.ContainsFunc(a.entries, func(p *Pending) bool { return !p.stays() && p.To.Policy != r.stands.Policy })
}

// keeper has the turn where no call has it, and nobody is to get it.
func (a *ahead) keeper() *Call {
	if a.nobody == nil {
		a.nobody = &Call{}
	}
	return a.nobody
}

// Made returns the entries of a run that lasts that were made since it was last asked: they are to be written in
// this order.
func (r *Run) Made() (made []Entry) {
	if r.ahead != nil {
		made, r.ahead.made = r.ahead.made, nil
	}
	return made
}

// Awaited is the last entry that is not applied yet, nil: all are.
func (r *Run) Awaited() *Pending {
	if r.ahead == nil || len(r.ahead.entries) == 0 {
		return nil
	}
	return r.ahead.entries[len(r.ahead.entries)-1]
}

// DueAhead is when the clock moves the run of the state to which its entries take it; zero: that has none.
func (r *Run) DueAhead() (due time.Time) {
	at := r.asRecorded()
	after := at.Policy.After(at.At.State)
	if after == nil || at.At.Complete || r.memory == nil {
		return due
	}
	entered := r.memory.entered
	for _, p := range r.ahead.entries {
		if p.Step.Changed || p.Type == Reset {
			entered = p.Time
		}
	}
	return entered.Add(time.Duration(after.Seconds) * time.Second)
}

// Durable applies an entry that is durable, and what was made before it: that is durable, too. It returns what has come
// of this one, once.
func (r *Run) Durable(p *Pending, now time.Time) (e Effects) {
	for a := r.ahead; len(a.entries) > 0 && a.entries[0].Seq <= p.Seq; {
		next := a.entries[0]
		a.entries = a.entries[1:]
		r.confirm(next, now)
	}
	if len(r.ahead.entries) == 0 {
		r.ahead.entries = nil
	}
	e, p.effects = p.effects, Effects{}
	return e
}

// confirm applies the first entry that is not applied yet.
func (r *Run) confirm(p *Pending, now time.Time) {
	p.pending = nil
	p.effects.From = r.Snapshot(now)
	p.room.GiveBack()
	r.apply(&p.Entry)
	if p.Type == Reset {
		p.effects.Ready = r.begunAnew(p.unasked)
	}
	if !p.stays() {
		if r.ahead.moving--; r.ahead.moving > 0 {
			to := r.lastMove()
			r.recorded = &to
		} else if r.holder == r.ahead.nobody {
			r.pass(&p.effects, now)
		}
	}
	p.effects.To = r.Snapshot(now)
}

// lastMove is where the entries take the run that are not applied yet.
func (r *Run) lastMove() (to Standing) {
	for _, p := range r.ahead.entries {
		if !p.stays() {
			to = p.To
		}
	}
	return to
}

// begunAnew does what comes of it that the run was begun anew though somebody had the turn.
func (r *Run) begunAnew(unasked bool) (ready []*Call) {
	r.moves++
	r.ahead.resets--
	switch {
	case r.task: // it belongs to the old run
		r.holder, r.task = r.ahead.keeper(), false
	case r.holder != nil:
		r.holder.orphaned = true
	}
	if unasked {
		ready = r.refuseQueue()
	}
	return ready
}

// restartAhead makes the entry of a run that lasts that is to begin anew.
func (r *Run) restartAhead(by Remark, now time.Time, unasked bool) (e Effects) {
	e.From = r.Snapshot(now)
	e.To = e.From
	e.Entries = r.use(now)
	if r.holder != nil {
		r.holder.orphaned = true
	}
	r.ahead.resets++
	begun := r.record(Entry{Type: Reset, Time: now, To: r.beginning(), Details: Details{Remark: by}})
	begun.pending.unasked = unasked
	e.Entries = append(e.Entries, begun)
	return e
}

// Begin makes the entry of a call that is about to be sent, where who reads the run again has to know of that: the call
// can move it, set something, is counted, uses up an answer that is kept, or is irreversible; in shadow the last alone, and
// the entry tells of nothing else. nil: there is none to wait for. It reports false where the run is about to
// stand elsewhere than where the call was decided: that is to leave, and to be entered again.
func (r *Run) Begin(c *Call, now time.Time) (p *Pending, ok bool) {
	turn, shadow := r.holder == c, c.Snapshot.Shadow
	if r.ahead == nil || r.Runless || (shadow || !turn) && !c.Begins() {
		return nil, true
	}
	if shadow {
		e := r.record(Entry{Type: Begun, Time: now, Call: c, Shadow: true, Details: Details{Said: c.sent(), Irreversible: true, Decided: c.decided}})
		c.begun = e.Seq
		return e.pending, true
	}
	if r.moving() || c.held().early {
		return nil, false
	}
	if c.Kind == policy.Signal { // which ends as it begins
		return nil, true
	}
	e := Entry{Type: Begun, Time: now, Call: c, Turn: turn && !c.orphaned, Details: Details{Said: c.sent(), Irreversible: c.irreversible(), Decided: c.decided}, Limits: c.limits()}
	has := c.held()
	if has.counted != nil {
		e.Counted = has.counted.limits
	}
	if has.reserved != nil {
		e.Unknown = has.reserved.Changes(policy.Unknown.Index())
	}
	e.Yes = has.yes()
	e = r.record(e)
	c.begun = e.Seq
	return e.pending, true
}

// unsent makes the entry of a call that had begun, and has no outcome: it did not go, or is to be sent once more, and
// begins anew then. It is made before the call gives back what it holds; but what it has taken of limits it gives back
// before that is handed over.
func (r *Run) unsent(c *Call, now time.Time) {
	has := c.held()
	r.record(Entry{Type: Unsent, Time: now, Call: c, Begun: c.begun, Details: Details{Yes: has.yes(), Decided: c.decided}, Limits: c.limits()})
	c.begun, c.told, c.line = 0, 0, 0
}

// Refuse turns down a call that has been put into the queue.
func (r *Run) Refuse(c *Call, code policy.Code) {
	r.queue = slices.DeleteFunc(r.queue, func(other *Call) bool { return other == c })
	c.release()
	c.refuse(code)
}

// IsShut reports whether nothing is allowed any more, since others have written the run.
func (r *Run) IsShut() bool { return r.shut }

// Shut has nothing be allowed any more in a run of which something cannot be written: others have written it.
func (r *Run) Shut() { r.shut = true }
