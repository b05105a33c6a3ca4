package runs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/tasks"
)

// What a run that lasts has made is handed over to the store before the run is unlocked, so that it is written in the
// order in which it was made.

// written is what was handed over.
type written struct {
	ticket  *journal.Ticket // nil: it was nothing
	pending []*run.Pending  // that count when they are durable
}

// writeLocked hands over what the run has made.
func (r *Run) writeLocked() (w written) {
	made := r.core.Made()
	if len(made) == 0 {
		return w
	}
	for i := range made {
		if p := made[i].Pending(); p != nil {
			w.pending = append(w.pending, p)
		}
	}
	var err error
	if w.ticket, err = r.kept.Write(made, r.core.DueAhead(), time.Now(), r.audited(made)); err != nil {
		r.shutLocked(err)
	}
	return w
}

// handedOver is what was handed over last of a run that is kept.
func (r *Run) handedOver() written {
	r.mu.Lock()
	defer r.mu.Unlock()
	return written{ticket: r.kept.Last()}
}

// shutLocked has nothing be allowed any more in the run, and nothing more be written of it, and logs that once.
func (r *Run) shutLocked(err error) {
	was := r.core.IsShut()
	r.core.Shut()
	r.kept.Drop() // what it would write next follows what is not there
	if was {
		return
	}
	if errors.Is(err, journal.ErrClosed) || errors.Is(err, journal.ErrNone) && r.ended.Load() { // who reads the run again finds out how far it is written
		return
	}
	if errors.Is(err, journal.ErrConflict) && r.of.cfg.Store.Shared() {
		r.kept.Doubt()
		go r.of.conflicts(r)
		return
	}
	r.logShut(err)
}

func (r *Run) logShut(err error) {
	r.of.cfg.Log.Error("a run is shut: what became of it cannot be written", "run", r.Name, "error", err)
}

// confirm waits until what was handed over is durable, and has it count. It returns what the last of it has changed, of
// which nobody was told yet, and why it can never be written.
func (r *Run) confirm(w written) (moved run.Shift, err error) {
	if w.ticket == nil {
		return moved, ErrUnwritten
	}
	<-w.ticket.Done()
	r.mu.Lock()
	if err = w.ticket.Err(); err != nil {
		r.shutLocked(err)
		r.mu.Unlock()
		return moved, err
	}
	var done []run.Effects
	var clocks []run.Entry
	for _, p := range w.pending {
		done = append(done, r.core.Durable(p, r.nowLocked()))
		if p.Type == run.Expired {
			clocks = append(clocks, p.Entry)
		}
	}
	r.windLocked()
	r.unlock()
	for i, e := range done {
		for _, c := range e.Ready {
			close(c.Turn)
		}
		if i < len(done)-1 {
			r.Tell(nil, run.Shifts{e.Shift})
		}
	}
	r.tellExpired(clocks)
	return done[len(done)-1].Shift, nil
}

// later has what was handed over count when it is durable, and tells of it then, where nobody waits for that.
func (r *Run) later(w written) {
	if w.ticket == nil || len(w.pending) == 0 {
		return
	}
	go func() {
		if moved, err := r.confirm(w); err == nil {
			r.Tell(nil, run.Shifts{moved})
		}
	}()
}

// within is confirm for somebody who waits no longer than the store's timeout: what comes after that tells itself.
func (r *Run) within(w written) (moved run.Shift, err error) {
	return r.counts(w, r.of.awaits(w))
}

// counts is within for somebody who has waited, and knows whether it was known in time what became of it.
func (r *Run) counts(w written, inTime bool) (moved run.Shift, err error) {
	if !inTime {
		go func() {
			if moved, err := r.confirm(w); err == nil {
				what := "what became of a call is written at last: its client was told that nobody knows"
				if w.pending[len(w.pending)-1].Type == run.Answered {
					what = "an operator's answer is written at last: they were told that nobody knows whether it is"
				}
				r.of.cfg.Log.Warn(what, "run", r.Name, "state", moved.To.State())
				r.Tell(nil, run.Shifts{moved})
			}
		}()
		return moved, ErrUnwritten
	}
	return r.confirm(w)
}

// awaits waits for what was handed over, no longer than the store's timeout, and reports whether it is known then what
// became of it.
func (g *Registry) awaits(w written) bool {
	if w.ticket == nil {
		return true
	}
	timeout := time.NewTimer(g.cfg.Store.Timeout())
	defer timeout.Stop()
	return waits(w, timeout.C)
}

// waits waits for what was handed over until over has come, and reports whether it is known then what became of it.
func waits[T any](w written, over <-chan T) bool {
	if w.ticket == nil {
		return true
	}
	select {
	case <-w.ticket.Done():
		return true
	case <-over:
		return w.ticket.IsDone()
	}
}

// ErrUnwritten is why nothing came of what could not be written, or not in time.
var ErrUnwritten = run.ErrUnwritten

// Begin has it kept that a call of a run that lasts is about to be sent, where that has to be. wait waits for it; nil:
// there is nothing to wait for. again tells that the call is to leave, and to be entered once more; so does [ErrAgain] of wait.
// Else the error is [ErrUnwritten].
func (r *Run) Begin(c *run.Call) (wait func() error, again bool, err error) {
	c.Note(r.of.cfg.Store.Recording())
	if !r.Acts() {
		return nil, false, ErrUnwritten
	}
	if (c.Snapshot.Shadow || !c.Verdict.Turn) && !c.Begins() {
		return nil, false, nil
	}
	if r.of.cfg.Store.Down() != nil {
		return nil, false, ErrUnwritten
	}
	r.mu.Lock()
	if !r.Acts() {
		r.unlock()
		return nil, false, ErrUnwritten
	}
	p, ok := r.core.Begin(c, time.Now())
	w := r.writeLocked()
	r.unlock()
	switch {
	case !ok:
		r.later(w)
		return nil, true, nil
	case p == nil:
		return nil, false, nil
	}
	return func() error {
		_, err := r.within(w)
		if err == nil {
			err = r.tookLimits(c)
		}
		if err == nil && !r.Acts() { // it has waited meanwhile
			err = ErrUnwritten
		}
		return err
	}, false, nil
}

// Decline has it kept that a call was refused, where the run is kept, and the store has room: else it is left out.
func (r *Run) Decline(c *run.Call, code policy.Code) {
	if r.kept != nil && code == policy.LimitReached {
		r.limitReached(c)
	}
	if r.kept == nil || !r.of.cfg.Store.Room() {
		return
	}
	r.mu.Lock()
	defer r.unlock()
	r.core.Decline(c, code, time.Now())
	r.tellLocked()
}

// tellLocked has what is counted of refusals be kept when it is time.
func (r *Run) tellLocked() {
	until := r.core.DeclinedUntil()
	switch {
	case until.IsZero():
	case r.unwound: // nobody comes back to it
		r.core.Declined(until)
	case r.telling == nil:
		r.telling = time.AfterFunc(time.Until(until), r.declined)
	default:
		r.telling.Reset(time.Until(until))
	}
}

// declined keeps what was counted of refusals, if its time is over, and there is room.
func (r *Run) declined() {
	r.mu.Lock()
	defer r.unlock()
	if r.of.cfg.Store.Down() != nil && !r.unwound {
		r.telling.Reset(time.Second) // until then it is counted on
		return
	}
	r.core.Declined(time.Now())
	r.tellLocked()
}

// beginKept begins a run that is kept, where there is a store: under a key, by which it is found again.
func (g *Registry) beginKept(r *Run, kind Kind, id string, owner wire.Principal) written {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.cfg.Store == nil {
		if by := r.core.By; by != (run.Remark{}) { // of whom the audit tells all the same
			at := r.core.Standing()
			r.tell([]run.Entry{{Type: run.Began, From: at, To: at, Details: run.Details{Remark: by}}})
		}
		return written{}
	}
	w := r.keepAtLocked(g.cfg.Store.Begin(NewID(), keyOf(kind, id), owner, time.Now()))
	if kind != Session && g.cfg.Store.Shared() {
		r.begins.Store(w.ticket)
	}
	return w
}

// keepAtLocked has a run that begins be kept.
func (r *Run) keepAtLocked(at *durable.Run) written {
	r.kept, r.Name, r.core.Acts = at, at.ID(), r.Acts
	if r.free {
		r.kept.SetFree()
	}
	return r.writeLocked()
}

func keyOf(kind Kind, id string) journal.Key { return durable.KeyOf(kind.String(), id) }

// loading is a run that is being read, or that is settled before it can be.
type loading struct {
	done    chan struct{} // closed when it is
	settled bool          // nothing was read: it can be now
	r       *Run          // nil: there is none of that key that goes on
	why     *Missing      // nil: it could be read
}

// errStore is for a run that cannot be read, or begun, now.
var errStore = &Missing{Code: policy.StoreUnavailable, Text: "What is kept of this run cannot be read or written now. Nothing was done; try again later."}

// errFull is for a run that cannot begin, since there is no room for it.
var errFull = &Missing{Code: policy.StoreUnavailable, Text: "The store of this proxy is full: no run can begin there now. Nothing was done; try again later."}

func (g *Registry) full() *Missing {
	if m := g.cfg.Telemetry.Meter; m != nil {
		m.RunRefused("stored")
	}
	g.cfg.Log.Warn("a run was refused: those that have not ended fill the store; end some, or raise --max-stored-runs or --max-store-size")
	return errFull
}

// ErrDamaged is for a run that is not kept as it was written.
var ErrDamaged = &Missing{Code: policy.StoreUnavailable, Text: "What is kept of this run is not what was written, and nothing is allowed in it. Nothing was done: an operator has to look at it."}

// damage is why a run is not what was written.
type damage struct {
	text  string
	until time.Duration // the run is not read again before, as deadline.Now
}

// looksAgain is for how long a run that is damaged is not read again for its clients: it costs as much as one that is not,
// and they ask for it as often as they like.
const looksAgain = time.Minute

// noteDamageLocked notes what reading a run has come to, and logs damage that is new.
func (g *Registry) noteDamageLocked(at runID, err error) {
	before := g.damaged[at].text
	switch {
	case err == nil || errors.Is(err, journal.ErrNone):
		delete(g.damaged, at)
		return
	case !durable.IsDamaged(err):
		return
	case len(g.damaged) >= maxGone:
		clear(g.damaged)
	}
	g.damaged[at] = damage{err.Error(), deadline.Now() + looksAgain}
	if before != err.Error() {
		g.cfg.Log.Error("a run cannot be read from the store; it is logged once, until it can be", "key", at.kind.String(), "error", err)
	}
}

// lookAgain has a run that was damaged be read again: an operator wants to know now.
func (g *Registry) lookAgain(at runID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d, ok := g.damaged[at]; ok {
		d.until = deadline.Now()
		g.damaged[at] = d
	}
}

// restore finds a run that is kept, and has not been read yet. nil: there is none.
func (g *Registry) restore(at runID) (*Run, *Missing) {
	timeout := time.NewTimer(g.cfg.Store.Timeout())
	defer timeout.Stop()
	for {
		g.mu.Lock()
		r := g.found[at]
		switch {
		case g.isOwn(at):
			r = g.process.Load()
		case r == nil:
			r = g.apart[at]
		}
		if r != nil || g.closed {
			g.mu.Unlock()
			return r, nil
		}
		if d, ok := g.damaged[at]; ok && deadline.Now() < d.until {
			g.mu.Unlock()
			return nil, ErrDamaged
		}
		if why := g.awayLocked(at); why != nil {
			g.mu.Unlock()
			return nil, why
		}
		l := g.readLocked(at)
		g.mu.Unlock()
		select {
		case <-l.done:
		case <-timeout.C:
			return nil, errStore
		}
		if !l.settled {
			return l.r, l.why
		}
	}
}

// readLocked has the run of a key be read, if it is not already.
func (g *Registry) readLocked(at runID) *loading {
	l := g.loading[at]
	if l == nil {
		l = &loading{done: make(chan struct{})}
		g.loading[at] = l
		go g.read(at, l)
	}
	return l
}

// isStillLocked reports whether what was read of a key is what there is; nil: nothing was. Else it is to be read again: the
// run has left memory just now, or is about to be written for the last time.
func (g *Registry) isStillLocked(at runID, read *Run) bool {
	return g.closed || g.loading[at] == nil && (read == nil || !read.ended.Load())
}

// read reads a run.
func (g *Registry) read(at runID, l *loading) {
	ctx, stop := context.WithTimeout(context.Background(), g.cfg.Store.Timeout())
	kept, ended, err := g.cfg.Store.Find(ctx, journal.Key{Kind: at.kind.String(), Hash: journal.Hash([]byte(at.id))})
	stop()
	by, elsewhere := errors.AsType[*journal.Elsewhere](err)
	var r *Run
	var ask func() // about its task; nil: none goes on
	was := g.Policy()
	switch {
	case errors.Is(err, journal.ErrNone):
	case durable.IsDamaged(err):
		l.why = ErrDamaged
	case elsewhere: // whoever can passes the request on
		l.why = &Missing{policy.StoreUnavailable, "Another process has this run, and cannot be reached from here. Nothing was done; try again.", by}
	case err != nil && g.cfg.Store.Shared() && g.cfg.Store.Down() != nil:
		l.why = errLapsed()
	case err != nil:
		l.why = errStore
		g.cfg.Log.Error("a run cannot be read from the store", "key", at.kind.String(), "error", err)
	case !ended:
		r, ask, l.why = g.resume(kept, at, was)
	}
	g.mu.Lock()
	delete(g.loading, at)
	g.noteDamageLocked(at, err)
	if r != nil && r.kept.LeaseLost() {
		r.unwind()
		r, ask, l.why = nil, nil, errLapsed()
	}
	if elsewhere && by.By != (journal.Peer{}) {
		g.noteAwayLocked(at, l.why)
	}
	switch {
	case ended:
		g.rememberLocked(at, kept.Owner())
	case r != nil && g.closed:
	case r != nil && g.isOwn(at):
		l.r, g.all[r] = r, struct{}{}
		r.born = 0
		g.process.Store(r)
	case r != nil && (at.kind == Session || at.kind == Process):
		l.r, g.all[r], g.apart[at] = r, struct{}{}, r
		r.born = 0
	case r != nil:
		l.r = r
		g.enterLocked(r)
	}
	g.mu.Unlock()
	if l.r != nil { // what came meanwhile
		g.reloading.Lock()
		l.r.follow(was)
		g.reloading.Unlock()
		if ask != nil {
			ask()
		}
	}
	close(l.done)
}

// enterLocked has a run be found.
func (g *Registry) enterLocked(r *Run) {
	delete(g.gone, r.at)
	g.all[r], g.found[r.at] = struct{}{}, r
	if r.Owner.Known() {
		g.owned[r.Owner]++
	}
	g.sweeping()
}

// resume makes a run of what is kept of it, while a policy is in force, and returns what asks about its task, nil where none
// goes on. It returns when all that comes of that is durable: who asks for the run waits no longer than the store's timeout.
func (g *Registry) resume(kept *durable.Loaded, at runID, inForce *policy.Policy) (r *Run, ask func(), why *Missing) {
	rules, err := g.rules(inForce, kept.Entries[len(kept.Entries)-1].To.Policy)
	if err != nil {
		g.cfg.Log.Error("a run cannot be read from the store", "key", at.kind.String(), "error", err)
		return nil, nil, errStore
	}
	now := time.Now()
	c := run.Config{Policy: rules, Shadow: g.Mode() == Shadow, Shared: &g.shared, Lasts: true}
	var lasting map[uint64]*tasks.Kept
	lasting, c.Kept = g.lasting(kept, now)
	r = &Run{of: g, kept: kept.Run, keyed: keyed{at: at}, Key: g.keyOf(at.kind), Name: kept.ID(), Owner: kept.Owner(),
		core: run.Replay(c, slices.Values(kept.Entries), now)}
	r.free, r.core.Acts = kept.IsFree(), r.Acts
	r.born = max(deadline.Now()-now.Sub(kept.Began()), 1)
	r.used.Store(int64(deadline.Now()))
	r.shadow.Store(c.Shadow)
	ask = r.goOn(lasting, now)
	r.mu.Lock()
	r.core.Expire(now) // before anybody asks
	w := r.writeLocked()
	r.windLocked()
	r.mu.Unlock()
	unknown := 0
	for _, p := range w.pending {
		if p.Resumed {
			unknown++
		}
	}
	if len(w.pending) > 0 {
		_, _ = r.confirm(w) // or it is shut
	}
	if g.cfg.Forgets && !run.Fresh(kept.Entries) && !r.isShut() {
		if g.cfg.Store.Down() != nil { // nothing was handed over: it is read anew
			r.unwind()
			return nil, nil, errStore
		}
		r.forgotten()
	}
	where := r.Where()
	g.cfg.Log.Info("a run goes on", "run", r.Name, "state", where.State(), "entries", len(kept.Entries), "unknown", unknown)
	return r, ask, nil
}

// forgotten begins a run anew whose server has forgotten what became of it, and waits until that is durable.
func (r *Run) forgotten() {
	var w written
	var from run.Snapshot
	r.Do(func(core *run.Run, now time.Time) run.Effects {
		e := core.RestartBy(run.Remark{}, now)
		w, from = r.writeLocked(), e.From
		return e
	})
	if len(w.pending) > 0 {
		if _, err := r.confirm(w); err != nil { // it is shut
			return
		}
	}
	r.of.cfg.Log.Warn("a run begins anew, since its server does (--on-upstream-restart restart)", "run", r.Name, "was", from.State())
}

// keyOf is the key of a kind that requests find their run by.
func (g *Registry) keyOf(k Kind) Key {
	for _, key := range g.cfg.Keys {
		if key.Kind == k {
			return key
		}
	}
	return Key{Kind: k}
}

// over says what becomes of a run that nobody has used for long.
func (c *Config) over(r *Run, now time.Duration) ending {
	if r.kept == nil || c.IdleEnds || c.Age > 0 && now-r.born > c.Age {
		return expired
	}
	return unloaded
}

// rests reports whether a run is wholly in the store, and nothing of it is going on: it can leave memory.
func (r *Run) rests() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	holder, _ := r.core.Holder()
	_, due := r.core.Due()
	return holder == nil && !due && !r.core.IsShut() && r.core.Waiting() == 0 && r.core.Awaited() == nil && r.core.DeclinedUntil().IsZero() && r.kept.Written() && len(r.core.Questions(time.Now())) == 0 && !r.Tasks.Running()
}

// follow has a run do what has come into force since it was made, when another policy was.
func (r *Run) follow(was *policy.Policy) {
	p, m := r.of.Policy(), r.of.Mode()
	moves := p != was && r.of.moves(was, p)(r)
	r.Tell(nil, run.Shifts{r.Do(func(core *run.Run, now time.Time) (e run.Effects) {
		if moves && core.Policy != p {
			_, e = core.Reload(p, now)
		}
		if r.shadow.Load() != (m == Shadow) {
			r.shadow.Store(m == Shadow)
			core.SetShadow(m == Shadow, now)
		}
		return e
	})})
}

// finish keeps that a run has ended: nobody finds it any more. Of one in which nothing has happened nothing is kept,
// unless somebody has said that it is to end.
func (r *Run) finish(by run.Remark) (w written) {
	if r.kept == nil && by == (run.Remark{}) {
		return w
	}
	r.Do(func(core *run.Run, now time.Time) (e run.Effects) {
		if by == (run.Remark{}) && core.Seq() <= 1 && core.Awaited() == nil {
			w.ticket = r.kept.Remove()
			core.Shut()
			return e
		}
		if e = core.Finish(by, now); r.kept != nil {
			w = r.writeLocked()
		}
		return e
	})
	return w
}

// own makes a run somebody's that was the first principal's who comes, for good. It returns what is to be durable first.
func (r *Run) own(owner wire.Principal) (w written, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept != nil {
		if w.ticket, err = r.kept.Own(owner); err != nil {
			return w, err
		}
	}
	r.Owner, r.free = owner, false
	return w, nil
}
