// Package run is a run of a policy: where it stands, what is decided there, and who
// has the turn to move it. It is pure: it holds no lock, does no I/O and reads no clock.
package run

import (
	"errors"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
)

// Config is what a run begins with.
type Config struct {
	Policy  *policy.Policy // in force
	*Shared                // by all runs
	Shadow  bool           // calls are decided in shadow
	Runless bool           // it is no run: see [Snapshot]
	Lasts   bool           // its entries are written ahead: see [Run.Durable]
	By      Remark         // who has it begin; zero: nobody but a client
	// Acts reports whether whoever has the run may act for it now: else nothing is allowed. nil: always.
	Acts func() bool
	// Kept is what is kept of calls that tasks have come of, by the numbers of the entries by which they began. [Replay]
	// alone reads it.
	Kept map[uint64]*Left
}

// Shared is what all runs have in common. The zero value is for runs that have nothing in common.
type Shared struct {
	Patience     time.Duration        // for how long a run may be stranded
	MaxRegisters int                  // how many bytes its registers may hold; 0 is 256 KiB
	Principals   *limit.Principals    // what they have taken of limits, whatever the run; nil: a table of the run's own
	Asking       *approval.Principals // what is asked of operators for them, likewise
	Checkpoint   int                  // after how many entries a run that lasts says all that it remembers: see [Replay]; 0: never
	// Secret reports whether of arguments nothing may be kept, nor their digest; nil: there are none.
	Secret func(s policy.Symbol, arguments []byte) bool
}

// withDefaults returns what is shared, with what it does not say.
func (s *Shared) withDefaults() *Shared {
	if s != nil && s.MaxRegisters > 0 && s.Principals != nil && s.Asking != nil {
		return s
	}
	var out Shared
	if s != nil {
		out = *s
	}
	if out.MaxRegisters == 0 {
		out.MaxRegisters = 256 << 10
	}
	if out.Principals == nil {
		out.Principals = limit.NewPrincipals(0)
	}
	if out.Asking == nil {
		out.Asking = &approval.Principals{}
	}
	return &out
}

// Run is one walk through a policy's automaton. Its entries are what has become of it,
// and [Replay] makes it of them again; the turn to move it and the calls that wait for it
// stand beside them, and begin empty. The call that has the turn moves it and nothing
// else does: every other call under way stays.
//
// A reload moves it to the policy in force, or leaves it behind: see [Run.Reload].
//
// The entries of a run that lasts are written ahead: see [Run.Durable].
//
// A Run is not safe for concurrent use. Time is the caller's.
type Run struct {
	stands   Standing   // where it stands: where its entries, and reloads since the last one, have taken it
	recorded *Standing  // where its entries take it; nil: where it stands
	ahead    *ahead     // of what is durable; nil: the run does not last
	memory   *memory    // what it remembers beside; nil: its policy asks for nothing of that
	asked    *questions // whether calls may go, of operators; nil: nobody was asked

	Config                   // Policy is the one in force; the run's own unless it is behind
	between []*policy.Policy // that came and went in force while a call held the turn, if they rename states

	holder *Call   // has the turn
	queue  []*Call // wait for the turn, in order
	moves  uint32  // how often a step or a restart has moved it; from 0 again after the last
	life   uint32  // likewise, from 1: which this is, of those that it began anew by itself
	seq    uint64  // of the last entry; 0: there is none
	moved  uint64  // that of the last entry that has moved it

	reset    bool // a reload since the last entry has begun it anew
	refused  bool // until it moves
	shut     bool // nothing is allowed any more: what is kept of it is not what it is
	finished bool // likewise: it has ended
	task     bool // holder is what is left of a call that a task has come of
}

// New returns a run at its beginning, which is now.
func New(c Config, now time.Time) Run {
	c.Shared = c.Shared.withDefaults()
	begun := Standing{Policy: c.Policy, At: c.Policy.Initial()}
	r := Run{Config: c, stands: begun, memory: newMemory(&c, now), life: 1}
	if c.Lasts {
		r.ahead = &ahead{fold: newFold(&c, now)}
		r.record(Entry{Type: Began, Time: now, To: begun, Details: Details{Remark: c.By}})
	}
	return r
}

// record makes an entry one of the run's.
func (r *Run) record(e Entry) Entry {
	r.seq++
	e.Seq, e.From = r.seq, r.asRecorded()
	if e.stays() {
		e.To = e.From
	}
	if r.ahead != nil {
		e.Set = fitting(e.Set, e.To.Policy)
	}
	if e.moves() {
		r.moved = r.seq
	}
	if e.Call != nil {
		e.Call.tell(r.seq)
	}
	if r.ahead == nil {
		r.apply(&e)
		return e
	}
	e = r.ahead.write(r, e)
	r.remembers(&e)
	return e
}

// apply takes an entry into the run.
func (r *Run) apply(e *Entry) {
	anew := e.Type == Reset || e.Step.Restarted
	if !e.stays() {
		r.stands, r.recorded, r.reset = e.To, nil, false
		if r.asked != nil {
			r.asked.unsaid = false
		}
	}
	if anew {
		r.refused = false
	}
	if e.Type == Answered {
		r.answered(e, r.next())
	}
	if r.memory = r.memory.after(e, r.Shared); e.Step.Changed {
		r.moves++
	}
	if e.Type == Finished {
		r.finished = true
	}
}

// after returns the memory of a run of which an entry tells next.
func (m *memory) after(e *Entry, s *Shared) *memory {
	c := Config{Policy: e.To.Policy, Shared: s}
	switch {
	case e.Type == Began:
		return newMemory(&c, e.Time)
	case e.Type == Reset, e.Step.Restarted:
		return m.anew(&c, e.Time)
	}
	if e.Type == Moved || e.Shadow && e.Step.Changed { // which may take it to the policy in force, too
		m = m.under(&c, e.Time)
	}
	if m != nil {
		m.registers.Apply(e.Set)
		if e.Step.Changed {
			m.entered = e.Time
			m.counts.Enter()
		}
	}
	return m
}

// moves reports whether the entry tells of a run that stands elsewhere since, or has set something, or began anew, or
// goes by another policy: what somebody has to see who decides by where it stands.
func (e *Entry) moves() bool {
	return !e.stays() || e.Type == Forked || e.Type == Finished || e.Type == Accepted || e.Type == Ended && e.Set != nil
}

// stays reports whether the run stands where it stood.
func (e *Entry) stays() bool {
	switch e.Type {
	case Begun, Unsent, Finished, Stayed, Declined, Checkpoint, Answered, Annotated, Accepted, Forked:
		return true
	}
	return e.Type == Ended && !e.Step.Changed
}

// Seq is the number of the run's last entry: the last that is applied. Entries are numbered from 1, without gaps.
func (r *Run) Seq() uint64 {
	if r.ahead != nil && len(r.ahead.entries) > 0 {
		return r.ahead.entries[0].Seq - 1
	}
	return r.seq
}

// MovedSince reports whether an entry behind this number has moved the run. Nobody has seen a number
// that there is not yet: since then it has.
func (r *Run) MovedSince(seq uint64) bool { return r.moved > seq || seq > r.seq }

// Inspect returns which signals an operator may send, who is to decide by what there is now: where reloads have taken
// the run is an entry from then on.
func (r *Run) Inspect(now time.Time) ([]policy.Sendable, Effects) {
	s := r.Snapshot(now)
	return s.sendable(r.facts(&Call{}, s, now)), Effects{Entries: r.use(now)}
}

// forget has a run that begins anew remember nothing of before, but windows.
func (r *Run) forget(now time.Time) {
	r.memory = r.memory.anew(&r.Config, now)
}

// moving reports whether an entry that is not durable yet moves the run.
func (r *Run) moving() bool { return r.ahead != nil && r.ahead.moving > 0 }

// overtaken reports whether a call belongs to a run before this one.
func (r *Run) overtaken(c *Call) bool { return c.orphaned || r.ahead != nil && r.ahead.resets > 0 }

// unsaid reports whether an entry is to tell that answers have ended which are kept.
func (r *Run) unsaid() bool { return r.asked != nil && r.asked.unsaid }

// asRecorded is where the run's entries have taken it.
func (r *Run) asRecorded() Standing {
	if r.recorded != nil {
		return *r.recorded
	}
	return r.stands
}

// place has the run stand somewhere else than its last entry says, of which the next one tells.
func (r *Run) place(s Standing) {
	if r.recorded == nil {
		was := r.stands
		r.recorded = &was
	}
	r.stands = s
}

// strand has the run stand where it does, and its state be gone since then; the zero time: be there.
func (r *Run) strand(since time.Time) {
	if s := r.stands; s.Stranded != since {
		s.Stranded = since
		r.place(s)
	}
}

// use makes an entry of where reloads have taken the run since the last one, if they
// have: it is told of when the run is used.
func (r *Run) use(now time.Time) []Entry {
	e := Entry{Type: Moved, Time: now, To: r.stands}
	switch {
	case r.moving():
		return nil
	case r.reset:
		e.Type = Reset
	case r.stands == r.asRecorded() && !r.unsaid():
		return nil
	case !r.stands.Stranded.IsZero():
		e.Type = Stranded
	}
	return []Entry{r.record(e)}
}

// Effects is what has come of something that was done to a run. Entries are to be
// recorded before anybody learns of the rest.
type Effects struct {
	Shift
	Entries []Entry
	Ready   []*Call // off the queue: one has the turn now, or all are to be entered again
}

// Shift is a change of where a run stands: whoever is shown its lists is told of those
// that differ.
type Shift struct{ From, To Snapshot }

// Shifts are the changes of where a run stands that come of one call; the zero Shift is none.
type Shifts [2]Shift

// Join returns what a change and a later one come to: one change, unless something else has
// moved the run in between, and told of that.
func Join(first, next Shift) Shifts {
	switch {
	case next == Shift{}:
		return Shifts{first}
	case first == Shift{}:
		return Shifts{next}
	case first.To == next.From:
		return Shifts{{first.From, next.To}}
	}
	return Shifts{first, next}
}

// Admission is what became of a call that wants to go upstream.
type Admission uint8

// The admissions.
const (
	Refused        Admission = iota // the verdict says why
	Admitted                        // decided; with the turn if the verdict takes it
	Queued                          // until effects have it ready, or it leaves
	Crowded                         // the turn is taken, and waiting would be of no use
	TaskRunning                     // the turn is a task's
	ListWanted                      // the decision hangs on the upstream's list
	ApprovalWanted                  // somebody has to say yes first: see [Run.Ask]
)

// Expect notes of which of its lives the run was asked for a call that has to wait before
// it can be entered.
func (r *Run) Expect(c *Call) { c.life = r.life }

// Enter decides a call, or puts it into the queue for the turn, in which there is room
// for so many. One that comes again, since the decision hung on a list, was asked of the
// run that it found when it came first.
func (r *Run) Enter(c *Call, room int, now time.Time) (a Admission, e Effects) {
	if c.life == 0 {
		c.life = r.life
	}
	if c.begun != 0 {
		r.unsent(c, now)
	}
	if e.Entries = r.use(now); r.isDue(now) {
		e.From = r.Snapshot(now)
		e.Entries = append(e.Entries, r.expire(now)...)
		e.To = r.Snapshot(now)
	}
	switch a = r.decide(c, r.Snapshot(now), now); {
	case a != Admitted || c.Unclear || !c.takesTurn() && (!r.moving() && !c.held().early || c.Snapshot.Shadow || !c.Begins()):
		return a, e
	case r.holder == nil:
		r.holder, c.orphaned = c, false
		return a, e
	case r.task:
		a = TaskRunning
	case len(r.queue) >= room:
		a = Crowded
	default:
		c.life, a = r.life, Queued
		r.queue = append(r.queue, c)
	}
	c.release()
	return a, e
}

// Holds reports whether a call has the turn.
func (r *Run) Holds(c *Call) bool { return r.holder == c }

// Granted decides a call again that has come by the turn: what it found when it was
// queued is past. A call that needs the turn no longer passes it on.
func (r *Run) Granted(c *Call, now time.Time) (a Admission, e Effects) {
	e.From = r.Snapshot(now)
	if !r.moving() {
		r.holder = nil
		_, e.Ready = r.catchUp(now) // to a policy that came since it was given the turn
	}
	r.holder, c.orphaned = c, false
	e.Entries = r.use(now)
	if a = r.decide(c, r.Snapshot(now), now); a != Admitted || !c.takesTurn() {
		r.pass(&e, now)
	}
	e.To = r.Snapshot(now)
	return a, e
}

// Keeps decides on a call that is to be sent once more, with what its client was asked
// for. If it has the turn, nothing has moved the run meanwhile; but the policy in force
// has to bind its name still, and a call that it does not bind passes the turn on. One that
// belongs to a run before this one has none, and in shadow nobody has: held is false, and
// the call is to be entered like any other.
func (r *Run) Keeps(c *Call, now time.Time) (a Admission, held bool, e Effects) {
	if r.holder != c {
		return Refused, false, e
	}
	e.From = r.Snapshot(now)
	if c.begun != 0 {
		r.unsent(c, now)
	}
	if held = !r.Shadow && !c.orphaned; held {
		a = r.decide(c, r.own(now), now)
	}
	if a == Refused || a == ApprovalWanted || a == Admitted && !c.takesTurn() {
		r.pass(&e, now)
	}
	e.To = r.Snapshot(now)
	return a, held, e
}

// Look decides a call without entering it.
func (r *Run) Look(c *Call, now time.Time) {
	c.decide(r.Snapshot(now), r.facts(c, r.Snapshot(now), now))
}

// facts are what guards see of a call; nil where there are none.
func (r *Run) facts(c *Call, s Snapshot, now time.Time) *guard.Call {
	if !s.guarded() {
		return nil
	}
	call := guard.Call{Name: c.Name, Now: now}
	if c.Arguments != nil {
		call.Args = c.Arguments.JSON()
	}
	if c.Who != nil {
		call.Who = *c.Who
	}
	return r.view(s.Policy).facts(call, s.State())
}

// decide decides a call in a snapshot.
func (r *Run) decide(c *Call, s Snapshot, now time.Time) Admission {
	used := c.held().approved.question
	c.release()
	c.moves = r.moves
	facts := r.facts(c, s, now)
	c.decide(s, facts)
	switch {
	case c.life != 0 && c.life != r.life:
		c.Outlived = true
		c.refuse(policy.NotAvailable)
	case c.lacksList():
		return ListWanted
	case !c.Verdict.Allowed:
	default:
		code := policy.CodeNone
		if facts != nil {
			code = r.reserve(c, facts)
		}
		switch {
		case code != policy.CodeNone:
		case c.pinned() && c.Locked == Differs:
			code = policy.DefinitionChanged
		case c.Misfit && !s.Shadow:
			code = policy.NotAvailable
		default:
			if c.wantsApproval() {
				code = r.approve(c, used, now)
			}
			if code == policy.CodeNone {
				c.life = 0
				return Admitted
			}
		}
		c.release()
		if code == policy.ApprovalPending {
			return ApprovalWanted
		}
		c.refuse(code)
	}
	return Refused
}

// Answered returns the questions that are open no more since it was last called.
func (r *Run) Answered() []*approval.Question {
	if r.asked == nil {
		return nil
	}
	return r.questions().Told()
}

// End is how a call has ended.
type End struct {
	Outcome policy.Outcome // by the answer's form alone
	Result  []byte         // that came, nil for none: named outcomes, and what is set, may hang on it
	Took    time.Duration  // from sending the call to its answer; 0: nobody knows
}

// Settle moves the run along the outcome of a call, which keeps the turn until it passes
// it on. A call without the turn stays, and may set something, unless it is of a run before this one: where it does not, the
// entry has its outcome alone. By its result that may be another one. The error says why there is no step, or why the result
// decides nothing.
func (r *Run) Settle(c *Call, end End, now time.Time) (e Entry, s Shift, err error) {
	if c.has != nil {
		c.has.approved = approved{} // for good
	}
	shadow := c.Snapshot.Shadow
	moves := shadow && r.followsShadow(c) || !shadow && r.holder == c
	idle := shadow && (c.Overlooked != policy.CodeNone || !moves && c.Verdict.Turn) // nothing comes of it
	if idle {
		c.release()
	}
	if idle && c.begun == 0 {
		return e, s, nil
	}
	s.From = r.Snapshot(now)
	e = Entry{Type: Ended, Time: now, Call: c, Begun: c.begun, Outcome: end.Outcome, Shadow: shadow, By: r.stands.Policy, To: r.stands}
	if c.begun = 0; r.ahead != nil {
		e.Said, e.Irreversible = c.ended(&e, end.Took), e.Begun == 0 && c.irreversible()
	}
	var fault error
	if a := c.Verdict.Alternative; !idle && (c.held().counted != nil || a != nil && a.Settles()) {
		fault = r.ended(c, end, &e)
	}
	switch {
	case !moves && e.Set == nil && e.Counted == nil && e.Limits == "" && e.Begun == 0:
		return Entry{Outcome: e.Outcome}, Shift{}, fault
	case !moves:
		e = r.record(e)
		s.To = r.Snapshot(now)
		return e, s, fault
	}
	from := r.stands.At
	if shadow {
		e.By, from = c.Snapshot.Policy, c.Snapshot.At
	}
	if !r.overtaken(c) {
		e.Step, err = e.By.Next(from, c.Verdict.Symbol, e.Outcome)
	}
	if err != nil || !r.arrive(&e) {
		if e.Begun == 0 {
			return Entry{}, Shift{}, err
		}
		e.Step, e.Set = policy.Step{}, nil
	}
	e = r.record(e)
	s.To = r.Snapshot(now)
	return e, s, errors.Join(err, fault)
}

// followsShadow reports whether a call that was decided in shadow, and so took no turn,
// moves the run: if nothing has moved it since, and no call has the turn that was decided
// before the mode changed. A reload is no move: the policy that decided the call steps it,
// and the one that the run has moved to meanwhile adopts the step.
func (r *Run) followsShadow(c *Call) bool {
	return c.Verdict.Turn && c.Overlooked == policy.CodeNone && r.holder == nil && r.moves == c.moves
}

// arrive says where an entry's step leads to, and reports whether it leads anywhere. A run
// that the step begins anew is a new run: it begins with the policy in force.
func (r *Run) arrive(e *Entry) (ok bool) {
	switch {
	case !e.Step.Changed:
		return true
	case e.Step.Restarted:
		e.To = r.beginning()
	case e.By != e.To.Policy:
		if e.To.At, ok = e.To.Policy.Adopt(e.By, e.Step.To); !ok {
			return false
		}
	default:
		e.To.At = e.Step.To
	}
	return true
}

// Pass gives the turn, if a call has it, to the one that has waited longest.
func (r *Run) Pass(c *Call, now time.Time) (e Effects) {
	if r.holder != nil && r.holder != c {
		return e
	}
	e.From = r.Snapshot(now)
	r.pass(&e, now)
	e.To = r.Snapshot(now)
	return e
}

// Leave takes a call that has no outcome out of the turn or the queue.
func (r *Run) Leave(c *Call, now time.Time) (e Effects) {
	if c.begun != 0 {
		r.unsent(c, now)
	}
	c.release()
	if r.holder == c {
		return r.Pass(c, now)
	}
	if i := slices.Index(r.queue, c); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
	}
	return e
}

// pass frees the turn, and gives it to the call that has waited longest. What is due comes
// before that.
func (r *Run) pass(e *Effects, now time.Time) {
	r.holder, r.task = nil, false
	if r.moving() { // whose turn is next is told by where it leads
		r.holder = r.ahead.keeper()
		return
	}
	_, ready := r.catchUp(now)
	e.Ready = append(e.Ready, ready...)
	if r.isDue(now) {
		e.Entries = append(append(e.Entries, r.use(now)...), r.expire(now)...)
	}
	if r.holder != nil { // where that has to be durable first
		return
	}
	if len(r.queue) > 0 {
		r.holder, r.queue = r.queue[0], r.queue[1:]
		e.Ready = append(e.Ready, r.holder)
	}
	if len(r.queue) == 0 {
		r.queue = nil // nor what it has in it
	}
}

// Due is when the clock of the run's state moves it, if nobody has the turn until then; ok is
// false where it has none, and while a call has the turn: it is looked at when that is passed on.
func (r *Run) Due() (due time.Time, ok bool) {
	if r.memory == nil || r.holder != nil || r.Runless || r.finished || r.stands.At.Complete {
		return due, false
	}
	after := r.stands.Policy.After(r.stands.At.State)
	if after == nil {
		return due, false
	}
	return r.memory.entered.Add(time.Duration(after.Seconds) * time.Second), true
}

// isDue reports whether the clock of the run's state moves it now. While a call has the turn none does.
func (r *Run) isDue(now time.Time) bool {
	due, ok := r.Due()
	return ok && !now.Before(due)
}

// catchUp has a run whose turn nobody has follow a reload that came meanwhile.
func (r *Run) catchUp(now time.Time) (f Fate, ready []*Call) {
	if r.stands.Policy != r.Policy {
		return r.follow(now)
	}
	r.between = nil
	if !r.stands.Stranded.IsZero() { // the policy that has its state is in force again
		r.strand(time.Time{})
		r.refused = false
	}
	return WasMoved, nil
}

// HandOver leaves a call's turn to what is left of the call, since a task has come of it,
// and reports whether its outcome is wanted: it had the turn, or needs none for what it sets.
// Nobody waits for the end of a task.
func (r *Run) HandOver(c, left *Call) (wanted bool, e Effects) {
	if r.holder != c {
		if wanted = !c.Verdict.Turn && (left.Settles() || c.begun != 0) && !c.Snapshot.Shadow; wanted {
			left.begun, c.begun = c.begun, 0
		}
		return wanted, e
	}
	left.orphaned = c.orphaned
	left.begun, c.begun = c.begun, 0
	r.holder, r.task = left, true
	e.Ready, r.queue = r.queue, nil
	return true, e
}

// Snapshot is where the run stands for whoever asks. While a call has the turn of a run
// that will move, all others are decided where it will be.
func (r *Run) Snapshot(now time.Time) Snapshot {
	if r.Runless {
		return Snapshot{Policy: r.Policy, At: r.Policy.Initial(), Runless: true, Shadow: r.Shadow}
	}
	if r.stands.Policy != r.Policy && r.holder != nil && r.Policy.OnReload() != policy.ReloadPin {
		if at, ok := r.heir(); ok {
			s := Snapshot{Policy: r.Policy, At: at, Refused: r.shut || r.lapsed() || r.finished, Shut: r.shut, Lapsed: r.lapsed(), Shadow: r.Shadow}
			if r.memory != nil {
				s.Holds = r.holds(s.Policy, at)
			}
			return s
		}
	}
	s := r.own(now)
	s.Shadow = r.Shadow
	return s
}

// AsksTime reports whether where the run stands, or what [Run.Enter], [Run.Pass] and [Run.Leave] make
// of that, hangs on the time: since a reload, until the run is used.
func (r *Run) AsksTime() bool {
	return r.memory != nil || r.reset || r.stands.Policy != r.Policy || r.stands != r.asRecorded() || r.unsaid() || !r.stands.Stranded.IsZero()
}

// own is where the run stands for the call that has the turn: in its own state, by its
// own policy and by the one in force.
func (r *Run) own(now time.Time) Snapshot {
	expired := !r.stands.Stranded.IsZero() && now.Sub(r.stands.Stranded) > r.Patience
	lapsed := r.lapsed()
	s := Snapshot{Policy: r.stands.Policy, At: r.stands.At, Refused: r.refused || expired || r.shut || lapsed || r.finished, Shut: r.shut, Lapsed: lapsed}
	if r.memory != nil {
		s.Holds = r.holds(s.Policy, s.At)
	}
	if r.stands.Policy != r.Policy {
		s.Gate = r.Policy
	}
	return s
}

// Standing is where the run stands by its own policy.
func (r *Run) Standing() Standing { return r.stands }

// Holder is the call that has the turn, nil for none, and whether a task has come of it.
func (r *Run) Holder() (c *Call, task bool) { return r.holder, r.task }

// Waiting is how many calls wait for the turn.
func (r *Run) Waiting() int { return len(r.queue) }
