package runs

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/tasks"
)

// Member is a session on a run.
type Member interface {
	// Changed marks the lists that have changed for the session with shifts of its run.
	Changed(moved run.Shifts)
	// Client reports whether it is a client's own, which keeps its run from expiring.
	Client() bool
	// Busy reports whether requests are under way in it, but those that only listen.
	Busy() bool
	Close()
}

// Call is a call that a run decides on: the Tag of its [run.Call].
type Call interface {
	// Decided is the call's part in the run.
	Decided() *run.Call
	// Refresh compares the call with what is in force now. It is called under the run's lock.
	Refresh()
	// AsksClient reports whether the call waits for its client to answer the upstream.
	AsksClient() bool
}

// Run is a run with the sessions that are on it. It is safe for concurrent use.
type Run struct {
	Key   Key
	Name  string         // for people; no secret
	Owner wire.Principal // whose it is; written under the Registry's lock and mu, read under either
	Tasks tasks.Table

	of   *Registry
	kept *durable.Run // where it is kept; nil: nowhere
	keyed
	server atomic.Pointer[Member]

	ForRunless bool        // it is where requests without a run go
	free       bool        // it is the first principal's who comes; guarded by the Registry's lock
	ended      atomic.Bool // it is found no more; written under the Registry's lock
	lost       atomic.Bool // it goes on in another process, or is for one to go on with
	shadow     atomic.Bool // calls are decided in shadow; written under mu
	unwound    bool        // no clock moves it any more; guarded by mu

	_       [46]byte   // what every call writes, from what every call only reads: a cache line apart
	mu      sync.Mutex // guards what follows
	core    run.Run
	members []Member
	clock   *time.Timer // of the run's state; nil: it had none yet
	telling *time.Timer // of what is to be kept of refusals; nil: there were none that are counted
}

// keyed is how a run is found by a key; zero: it is not.
type keyed struct {
	id   string        // what the key says; "" while nobody has said it
	at   runID         // by which it is found
	born time.Duration // as deadline.Now
	used atomic.Int64  // when it was found last, as deadline.Now
	// begins is until which nobody uses the run: another process may have begun that of the key first. nil: the run has begun.
	begins atomic.Pointer[journal.Ticket]
}

// EntryOf is for a line of the audit on a call: what the store calls the run, and the number of the entry of which the line
// tells, as [run.Call.Line] has it. Of a run that is not kept it is nothing.
func (r *Run) EntryOf(c *run.Call) (run string, seq uint64) {
	if r.kept == nil {
		return "", 0
	}
	return r.kept.ID(), c.Line()
}

// Shadow reports whether calls are decided in shadow.
func (r *Run) Shadow() bool { return r.shadow.Load() }

// Ended reports whether the run is found no more.
func (r *Run) Ended() bool { return r.ended.Load() }

// Lost reports whether this process has the run no more: it goes on elsewhere.
func (r *Run) Lost() bool { return r.lost.Load() }

// Acts reports whether this process may act for the run now.
func (r *Run) Acts() bool { return !r.lost.Load() && (r.kept == nil || r.kept.Acts()) }

// Use notes that somebody uses the run now.
func (r *Run) Use() {
	if r.born != 0 {
		r.used.Store(int64(deadline.Now()))
	}
}

// Server is the session of the requests of clients without sessions: nil before the first came, and
// once the run has ended.
func (r *Run) Server() Member {
	if r.ended.Load() {
		return nil
	}
	return r.serving()
}

// serving is that session, of a run that has ended as well.
func (r *Run) serving() Member {
	if m := r.server.Load(); m != nil {
		return *m
	}
	return nil
}

func (r *Run) join(m Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = append(r.members, m)
}

func (r *Run) part(m Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = slices.DeleteFunc(slices.Clone(r.members), func(other Member) bool { return other == m })
}

// on returns the sessions on the run. The slice is not changed any more.
func (r *Run) on() []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[:len(r.members):len(r.members)]
}

// Tell marks for every session on the run but one the lists that have changed for
// it with shifts.
func (r *Run) Tell(but Member, moved run.Shifts) {
	if !slices.ContainsFunc(moved[:], func(m run.Shift) bool { return m.From != m.To }) {
		return
	}
	for _, m := range r.on() {
		if m != but {
			m.Changed(moved)
		}
	}
}

// TellBy has tell, or, where that is nil, all whom the run has, told what the end of a task has changed.
func (r *Run) TellBy(tell func(run.Shifts), moved run.Shifts) {
	if tell == nil {
		r.Tell(nil, moved)
		return
	}
	tell(moved)
}

// Where returns where the run stands.
func (r *Run) Where() run.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Snapshot(r.nowLocked())
}

// Rules is the policy in force in the run: that of the process, or one of another process that came into force later.
func (r *Run) Rules() *policy.Policy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Policy
}

// nowLocked is the time where something hangs on it, the zero time elsewhere: to read the clock
// costs as much as to decide.
func (r *Run) nowLocked() (now time.Time) {
	if r.core.AsksTime() {
		now = time.Now()
	}
	return now
}

// windLocked winds the clock of the run's state. It is called whenever the run may have moved.
func (r *Run) windLocked() {
	if due, ok := r.core.Due(); ok || r.clock != nil {
		r.wind(due, ok)
	}
}

// unlock frees the run, hands over what is to be kept of it, and tells those who wait for answers of questions that are
// open no more.
func (r *Run) unlock() {
	var w written
	if r.kept != nil {
		w = r.writeLocked()
	}
	for _, q := range r.core.Answered() {
		close(q.Done)
	}
	r.mu.Unlock()
	if len(w.pending) > 0 {
		r.later(w)
	}
}

// Do does something to the run, and then wakes the calls that are off its queue.
func (r *Run) Do(f func(core *run.Run, now time.Time) run.Effects) run.Shift {
	return r.do(time.Now, f)
}

func (r *Run) do(clock func() time.Time, f func(core *run.Run, now time.Time) run.Effects) run.Shift {
	r.mu.Lock()
	e := f(&r.core, clock())
	r.windLocked()
	r.unlock()
	for _, c := range e.Ready {
		close(c.Turn)
	}
	if len(e.Entries) > 0 {
		r.tell(e.Entries)
	}
	return e.Shift
}

// Expect notes of which of its lives a run was asked for a call that has to wait before it can
// be decided.
func (r *Run) Expect(c Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.Expect(c.Decided())
}

// Enter decides a call or puts it into the queue for the turn: its Turn closes when it is
// there. Behind one whose client is asked, nobody waits.
func (r *Run) Enter(c Call, maxQueue int) run.Admission {
	return r.enter(c, maxQueue, r.nowLocked, r.core.Enter)
}

// enter has do enter a call.
func (r *Run) enter(c Call, maxQueue int, clock func() time.Time, do func(*run.Call, int, time.Time) (run.Admission, run.Effects)) run.Admission {
	r.mu.Lock()
	d := c.Decided()
	a, e := do(d, r.readyLocked(c, maxQueue), clock())
	switch {
	case a == run.Queued && r.kept != nil && r.of.cfg.Store.Down() != nil: // nobody's turn comes
		r.core.Refuse(d, policy.StoreUnavailable)
		a = run.Refused
	case a == run.Queued:
		d.Turn = make(chan struct{})
	}
	r.windLocked()
	r.unlock()
	if len(e.Entries) > 0 {
		r.tell(e.Entries)
		r.Tell(nil, run.Shifts{e.Shift})
	}
	return a
}

// readyLocked makes a call ready to be entered, and returns how many may wait for the turn with it.
func (r *Run) readyLocked(c Call, maxQueue int) int {
	c.Decided().Tag = c
	c.Refresh()
	if holder, _ := r.holderLocked(); holder != nil && holder.AsksClient() {
		return 0
	}
	return maxQueue
}

// Granted decides a call again that is off the queue. It reports false where the call has
// not come by the turn, and is to be entered again.
func (r *Run) Granted(c Call) (a run.Admission, ok bool) {
	r.Tell(nil, run.Shifts{r.Do(func(core *run.Run, now time.Time) (e run.Effects) {
		if ok = core.Holds(c.Decided()); ok {
			c.Refresh()
			a, e = core.Granted(c.Decided(), now)
		}
		return e
	})})
	return a, ok
}

// Keeps decides on a call that is to be sent once more; held is as of [run.Run.Keeps].
func (r *Run) Keeps(c Call) (a run.Admission, moved run.Shift, held bool) {
	moved = r.Do(func(core *run.Run, now time.Time) (e run.Effects) {
		c.Refresh()
		a, held, e = core.Keeps(c.Decided(), now)
		return e
	})
	return a, moved, held
}

// Settle moves the run along the outcome of a call, which keeps the turn; see [run.Run.Settle]. In a run that lasts it
// waits until that is durable. Where it cannot be written, or not in time, the error is an [ErrUnwritten], and whoever
// has to hears of it later.
func (r *Run) Settle(c *run.Call, end run.End) (e run.Entry, moved run.Shift, err error) {
	if c.Read(end); r.kept != nil {
		c.Note(r.of.cfg.Store.Recording())
	}
	r.mu.Lock()
	e, moved, err = r.core.Settle(c, end, time.Now())
	var w written
	if r.kept != nil {
		if e.Seq == 0 && r.of.cfg.Store.Room() {
			end.Outcome = cmp.Or(e.Outcome, end.Outcome)
			e = r.core.Stay(c, end, time.Now())
		}
		w = r.writeLocked()
	}
	r.unlock()
	if len(w.pending) == 0 {
		return e, moved, err
	}
	moved, unwritten := r.within(w)
	switch {
	case unwritten != nil && !r.Acts():
		return run.Entry{}, moved, run.ErrLeft
	case unwritten != nil:
		return run.Entry{}, moved, ErrUnwritten
	}
	return e, moved, err
}

// Look decides a call without entering it.
func (r *Run) Look(c Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.Look(c.Decided(), r.nowLocked())
}

// Pass gives a call's turn to the one that has waited longest.
func (r *Run) Pass(c *run.Call) run.Shift {
	return r.do(r.nowLocked, func(core *run.Run, now time.Time) run.Effects { return core.Pass(c, now) })
}

// Leave takes a call out of the turn or the queue without a step.
func (r *Run) Leave(c *run.Call) run.Shift {
	return r.do(r.nowLocked, func(core *run.Run, now time.Time) run.Effects { return core.Leave(c, now) })
}

// Lasts reports whether what becomes of the run is kept.
func (r *Run) Lasts() bool { return r.kept != nil }

// Renew begins a run anew that is complete. The error is an [ErrUnwritten].
func (r *Run) Renew() (moved run.Shift, ok bool, err error) {
	_, moved, ok, err = r.durably((*run.Run).Renew)
	return moved, ok, err
}

// Restart begins a run anew, and returns the state that it stood in. A call under way that holds its turn comes to its
// end, and steps nothing. The error is an [ErrUnwritten].
func (r *Run) Restart(by run.Remark) (state string, err error) {
	from, moved, _, err := r.durably(func(core *run.Run, now time.Time) (run.Effects, bool) { return core.RestartBy(by, now), true })
	r.Tell(nil, run.Shifts{moved})
	return from.State(), err
}

// migrate is Renew for a run that is stranded, without waiting: w is what has to be durable first.
func (r *Run) migrate() (moved run.Shift, ok bool, w written, err error) {
	if !r.stranded() {
		return moved, false, w, nil
	}
	_, moved, ok, w, err = r.handsOver((*run.Run).Migrate)
	return moved, ok, w, err
}

func (r *Run) stranded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.core.Standing().Stranded.IsZero()
}

// durably has do change the run, and waits until that is durable. It returns where the run stood.
func (r *Run) durably(do func(core *run.Run, now time.Time) (run.Effects, bool)) (from run.Snapshot, moved run.Shift, ok bool, err error) {
	from, moved, ok, w, err := r.handsOver(do)
	if len(w.pending) > 0 {
		moved, err = r.within(w)
	}
	return from, moved, ok, err
}

// handsOver is durably without waiting.
func (r *Run) handsOver(do func(core *run.Run, now time.Time) (run.Effects, bool)) (from run.Snapshot, moved run.Shift, ok bool, w written, err error) {
	if r.kept != nil && r.of.cfg.Store.Down() != nil {
		return r.Where(), moved, true, w, ErrUnwritten
	}
	moved = r.Do(func(core *run.Run, now time.Time) (e run.Effects) {
		e, ok = do(core, now)
		w, from = r.writeLocked(), e.From
		return e
	})
	return from, moved, ok, w, nil
}

// Holder is the call, or the task, that has the turn.
func (r *Run) Holder() (Call, *tasks.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holderLocked()
}

func (r *Run) holderLocked() (c Call, t *tasks.Task) {
	switch holder, isTask := r.core.Holder(); {
	case isTask:
		t = holder.Tag.(*tasks.Task)
	case holder != nil:
		c, _ = holder.Tag.(Call)
	}
	return c, t
}

// expired reports whether a run's time has run out. One that a client's session is
// on, or that a request or a task is under way for, is in use.
func (r *Run) expired(now time.Duration, c *Config) bool {
	idle := now-time.Duration(r.used.Load()) > c.Idle
	if !idle && (c.Age == 0 || now-r.born <= c.Age) {
		return false
	}
	if !r.inUse() && !r.isShut() && (c.over(r, now) != unloaded || r.rests()) {
		return true
	}
	if idle {
		r.used.Store(int64(now))
	}
	return false
}

// inUse reports whether anybody is on a run who keeps it.
func (r *Run) inUse() bool {
	members := r.on()
	if _, running := r.Holder(); running != nil && (len(members) > 0 || running.Again()) {
		return true
	}
	return slices.ContainsFunc(members, func(m Member) bool { return m.Client() || m.Busy() })
}

// Info is where a run stands at a moment.
type Info struct {
	State    string
	Complete bool
	Policy   string    // the digest of the policy that steps it
	Stranded time.Time // since when its state is gone; zero: it is not
	Refused  bool      // nothing is allowed until it moves
	Shut     bool      // nothing is allowed until an operator accepts what the store has of it
	TurnHeld bool      // by a call under way
	Queued   int       // calls that wait for the turn
	Seq      uint64    // the number of its last entry
	Name     string    // "" where the session's stands for it
	Kept     string    // what the store calls it, "" where it is not kept
	Key      Kind      // by which it is found
	Owner    wire.Principal
	AtRest   bool          // it is in the store alone: it is read when it is used
	Lease    int64         // of the process that has it; 0: nobody has it, or it is not kept where several could
	Sessions int           // that are on it, its own among them
	Age      time.Duration // since it began, Idle since it was found last; 0 for those of sessions
	Idle     time.Duration
}

// Info looks where the run stands.
func (r *Run) Info() Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.infoLocked()
}

// Inspected is all that there is to see of a run.
type Inspected struct {
	Info
	Registers *register.View    // nil: its policy has none
	Counts    []byte            // of limits, as JSON
	Signals   []policy.Sendable // that an operator may send
}

// Inspect is Info for an operator who is to decide by it, with all that there is to see.
func (r *Run) Inspect() Inspected {
	r.mu.Lock()
	defer r.unlock()
	now := time.Now()
	signals, e := r.core.Inspect(now)
	r.tell(e.Entries)
	return Inspected{r.infoLocked(), r.core.Registers(), r.core.Counts(now), signals}
}

// MovedSince reports whether an entry behind this number has moved the run.
func (r *Run) MovedSince(seq uint64) bool {
	r.mu.Lock()
	defer r.unlock()
	_, e := r.core.Inspect(time.Now())
	r.tell(e.Entries)
	return r.core.MovedSince(seq)
}

func (r *Run) infoLocked() Info {
	at := r.core.Standing()
	holder, _ := r.core.Holder()
	i := Info{Name: r.Name, Key: r.Key.Kind, Owner: r.Owner, Sessions: len(r.members),
		State: at.State(), Complete: at.At.Complete, Policy: at.Policy.Digest(), Stranded: at.Stranded,
		Refused: r.core.Snapshot(r.nowLocked()).Refused, Shut: r.core.IsShut(), TurnHeld: holder != nil, Queued: r.core.Waiting(), Seq: r.core.Seq(),
	}
	if r.kept != nil {
		i.Kept, i.Lease = r.kept.ID(), r.kept.Under()
	}
	if r.born != 0 {
		now := deadline.Now()
		i.Age, i.Idle = now-r.born, now-time.Duration(r.used.Load())
	}
	return i
}
