package proxy

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// liveRun is one walk through the automaton. Its configuration is written by the
// call that holds the turn and by nothing else: every other call under way
// stays, and a stay writes nothing.
//
// A reload moves it to the policy in force, or leaves it behind: see reload.go.
type liveRun struct {
	keyed
	shadow atomic.Bool // calls are decided in shadow; written under mu

	_        apart
	mu       sync.Mutex // guards what follows
	policy   *policy.Policy
	at       policy.Configuration
	force    *policy.Policy   // the policy in force; the run's own unless it is behind
	between  []*policy.Policy // that came and went in force while a call held the turn, if they rename states
	stranded time.Time        // since when its state is gone; zero: it is not
	shut     bool             // refused until it moves
	patience time.Duration    // how long it may be stranded; set once
	holder   *call
	queue    []*call    // waiting for the turn, in order
	moves    uint64     // how often a step or a restart has moved it
	life     uint64     // from 1: which this is, of those that it began anew by itself
	members  []*session // that are on it
	tasks    map[taskAt]*task
	running  *task // that holds the turn, with the call that began it; nil: none does
}

// newRunLocked returns a run at its beginning, of what is in force.
func (p *Proxy) newRunLocked() *liveRun {
	r := &liveRun{life: 1, policy: p.policy, at: p.policy.Initial(), force: p.policy, patience: p.cfg.MaxStranded}
	r.shadow.Store(p.mode == Shadow)
	p.runs[r] = struct{}{}
	return r
}

// join makes a session one of those on the run, leave ends that. What changes for
// the run each of them is told.
func (r *liveRun) join(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = append(r.members, s)
}

func (r *liveRun) part(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = slices.DeleteFunc(slices.Clone(r.members), func(m *session) bool { return m == s })
}

// on returns the sessions on the run. The slice is not changed any more.
func (r *liveRun) on() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[:len(r.members):len(r.members)]
}

// tell marks for every session on the run but one the lists that have changed for
// it with a shift.
func (r *liveRun) tell(m shift, but *session) {
	if m.from == m.to {
		return
	}
	for _, s := range r.on() {
		if s != but {
			s.changed.Mark(s.differing(m))
		}
	}
}

// entry is what became of a call that wants to go upstream.
type entry uint8

const (
	refused  entry = iota // the verdict says why
	admitted              // decided; with the turn if the verdict takes it
	queued                // waiting for the turn: c.turn closes when it is there
	crowded               // the turn is taken, and waiting would be of no use
	tasked                // the turn is a task's
	unlisted              // the verdict hangs on a list that is not at hand
)

// where returns where the run stands.
func (r *liveRun) where() run.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.placeLocked()
}

// asked notes of which of its lives a run was asked for a call that has to wait before it can
// be decided.
func (r *liveRun) asked(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.life = r.life
}

// enter decides a call or puts it into the queue for the turn. One that comes again, since
// the decision hung on a list, was asked of the run that it found when it came first.
func (r *liveRun) enter(c *call, maxQueue int) entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.life == 0 {
		c.life = r.life
	}
	switch e := r.decideLocked(c); {
	case e != admitted || !c.Verdict.Turn || c.unclear || c.Snapshot.Shadow:
		return e
	case r.holder == nil:
		r.holder, c.orphaned = c, false
		return admitted
	case r.running != nil:
		return tasked
	case r.holder.asks.Load() > 0 || len(r.queue) >= maxQueue:
		return crowded
	}
	c.life = r.life
	c.turn = make(chan struct{})
	r.queue = append(r.queue, c)
	return queued
}

// granted decides a call again that has come by the turn: what it found when it
// queued is past. A call that needs the turn no longer gives it on.
func (r *liveRun) granted(c *call) (e entry, moved shift) {
	r.mu.Lock()
	defer r.mu.Unlock()
	moved.from = r.placeLocked()
	r.holder = nil
	r.catchUpLocked() // to a policy that came since it was given the turn
	r.holder, c.orphaned = c, false
	e = r.decideLocked(c)
	if e != admitted || !c.Verdict.Turn || c.Snapshot.Shadow {
		r.passLocked(c)
	}
	moved.to = r.placeLocked()
	return e, moved
}

// keeps decides on a call that is to be sent once more, with what its client was asked
// for. If it holds the turn, nothing has moved the run meanwhile; but the policy in force
// has to bind its name still, and a call that it does not bind gives the turn on. One that
// belongs to a run before this one has none to hold, and in shadow nobody has: held is
// false, and the call is to be decided like any other.
func (r *liveRun) keeps(c *call) (e entry, moved shift, held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holder != c {
		return refused, shift{}, false
	}
	moved.from = r.placeLocked()
	if held = !r.shadow.Load() && !c.orphaned; held {
		e = r.judgeLocked(c, r.holdersLocked())
	}
	if e == refused {
		r.passLocked(c)
	}
	moved.to = r.placeLocked()
	return e, moved, held
}

func (r *liveRun) decideLocked(c *call) entry { return r.judgeLocked(c, r.placeLocked()) }

// judgeLocked decides a call in a snapshot.
func (r *liveRun) judgeLocked(c *call, at run.Snapshot) entry {
	c.Snapshot, c.moves = at, r.moves
	c.Verdict = c.Snapshot.Decide(c.Kind, c.Name, c.Listed, c.argument)
	switch {
	case c.life != 0 && c.life != r.life:
		c.outlived = true
		c.Verdict.Allowed, c.Verdict.Turn, c.Verdict.Code = false, false, policy.NotAvailable
		return refused
	case c.lacksList():
		return unlisted
	case !c.Verdict.Allowed || c.drifted() || c.misfits():
		return refused
	}
	c.life = 0
	return admitted
}

// lacksList reports whether the decision hangs on a list that is not at hand.
func (c *call) lacksList() bool {
	if c.Known || c.blind && c.Snapshot.Shadow {
		return false
	}
	nameless := c.nameless && !c.Snapshot.Shadow
	return c.Verdict.ByGlob || c.Verdict.Allowed && (nameless || c.validated() || c.pinned() || c.headed() != nil || c.handled()) || c.hangsOnList()
}

// hangsOnList reports whether a refusal's code would be another one if the
// upstream did not list the name: a glob binds in some other state.
func (c *call) hangsOnList() bool {
	return c.Verdict.Code == policy.InvalidTransition &&
		c.Snapshot.Decide(c.Kind, c.Name, false, nil).Code != policy.InvalidTransition
}

// shift is what a call changed of where its run stands: by its outcome, or by
// giving the turn back that kept the run from the policy in force.
type shift struct{ from, to run.Snapshot }

// leave takes a call out of the turn or the queue without a step.
func (r *liveRun) leave(c *call) (moved shift) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holder == c {
		moved.from = r.placeLocked()
		r.passLocked(c)
		moved.to = r.placeLocked()
	} else if i := slices.Index(r.queue, c); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
	}
	return moved
}

// step is a step that a run has taken; zero but for the shift if it took none.
type step struct {
	policy.Step
	by *policy.Policy // the policy that stepped it
	shift
}

// step moves the run along the outcome of a call and gives the turn on. For a
// call without the turn it changes nothing, and there is no step.
func (r *liveRun) step(c *call, o policy.Outcome) (taken step, err error) {
	if !c.Verdict.Turn && !c.Snapshot.Shadow {
		return step{}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case c.Snapshot.Shadow:
		return r.shadowStepLocked(c, o)
	case r.holder != c:
		return step{}, nil
	}
	taken.from = r.placeLocked()
	if !c.orphaned {
		taken.by = r.policy
		if taken.Step, err = r.policy.Next(r.at, c.Verdict.Symbol, o); err == nil {
			r.arriveLocked(taken.Step)
		}
	}
	r.passLocked(c)
	taken.to = r.placeLocked()
	return taken, err
}

// arriveLocked takes the run where a step leads. A run that the step begins anew
// is a new run: it begins with the policy in force.
func (r *liveRun) arriveLocked(s policy.Step) {
	r.at = s.To
	if s.Changed {
		r.moves++
	}
	if s.Restarted {
		r.beginLocked()
	}
}

// passLocked gives the turn to the call that has waited longest.
func (r *liveRun) passLocked(c *call) {
	if r.holder != c {
		return
	}
	r.holder = nil
	r.catchUpLocked()
	if len(r.queue) > 0 {
		r.holder = r.queue[0]
		r.queue = slices.Delete(r.queue, 0, 1)
		close(r.holder.turn)
	}
}

// restart puts the run back to its beginning. A call that holds the turn keeps
// it until it ends, but steps no more: it belongs to the old run.
func (r *liveRun) restart() (moved shift) {
	r.mu.Lock()
	defer r.mu.Unlock()
	moved.from = r.placeLocked()
	r.restartLocked()
	moved.to = r.placeLocked()
	return moved
}

// restartAfterLoss is restart where the upstream was lost, and nobody has asked for it.
func (r *liveRun) restartAfterLoss() (moved shift) {
	r.mu.Lock()
	defer r.mu.Unlock()
	moved.from = r.placeLocked()
	r.restartLocked()
	r.refuseQueueLocked()
	moved.to = r.placeLocked()
	return moved
}

func (r *liveRun) beginLocked() {
	r.policy, r.at, r.between = r.force, r.force.Initial(), nil
	r.moves++
	r.stranded, r.shut = time.Time{}, false
}

// refuseQueueLocked refuses what waits for the turn of a run that began anew by itself: it
// was asked of the old one, in which the call before it may have done it already.
func (r *liveRun) refuseQueueLocked() {
	r.life++
	for _, c := range r.queue { // they are decided anew, and find that
		close(c.turn)
	}
	r.queue = nil
}

func (r *liveRun) restartLocked() {
	r.beginLocked()
	switch {
	case r.running != nil: // it belongs to the old run
		r.running, r.holder = nil, nil
	case r.holder != nil:
		r.holder.orphaned = true
	}
}
