package proxy

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// liveRun is a run with the sessions that are on it. It is safe for concurrent use.
type liveRun struct {
	keyed
	shadow atomic.Bool // calls are decided in shadow; written under mu

	_       apart
	mu      sync.Mutex // guards what follows
	core    run.Run
	members []*session
	tasks   map[taskAt]*task
}

// newRunLocked returns a run at its beginning, of what is in force.
func (p *Proxy) newRunLocked() *liveRun {
	shadow := p.mode == Shadow
	r := &liveRun{core: run.New(run.Config{Policy: p.Policy(), Shadow: shadow, Patience: p.cfg.MaxStranded})}
	r.shadow.Store(shadow)
	p.runs[r] = struct{}{}
	return r
}

// join makes a session one of those on the run, part ends that. What changes for
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
// it with shifts.
func (r *liveRun) tell(but *session, moved ...run.Shift) {
	if !slices.ContainsFunc(moved, func(m run.Shift) bool { return m.From != m.To }) {
		return
	}
	for _, s := range r.on() {
		if s != but {
			s.changed.Mark(s.differing(moved...))
		}
	}
}

// where returns where the run stands.
func (r *liveRun) where() run.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Snapshot(time.Now())
}

// does does something to the run, and then wakes the calls that are off its queue.
func (r *liveRun) does(f func(core *run.Run, now time.Time) run.Effects) run.Shift {
	r.mu.Lock()
	e := f(&r.core, time.Now())
	r.mu.Unlock()
	for _, c := range e.Ready {
		close(c.Tag.(*call).turn)
	}
	return e.Shift
}

// asked notes of which of its lives a run was asked for a call that has to wait before it can
// be decided.
func (r *liveRun) asked(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.core.Expect(&c.Call)
}

// enter decides a call or puts it into the queue for the turn: c.turn closes when it is
// there. Behind one whose client is asked, nobody waits.
func (r *liveRun) enter(c *call, maxQueue int) run.Admission {
	r.mu.Lock()
	defer r.mu.Unlock()
	if holder, task := r.core.Holder(); holder != nil && !task && holder.Tag.(*call).asks.Load() > 0 {
		maxQueue = 0
	}
	c.Tag = c
	c.compareAgain()
	a, _ := r.core.Enter(&c.Call, maxQueue, time.Now())
	if a == run.Queued {
		c.turn = make(chan struct{})
	}
	return a
}

// granted decides a call again that is off the queue. It reports false where the call has
// not come by the turn, and is to be entered again.
func (r *liveRun) granted(c *call) (a run.Admission, ok bool) {
	r.tell(nil, r.does(func(core *run.Run, now time.Time) (e run.Effects) {
		if ok = core.Holds(&c.Call); ok {
			c.compareAgain()
			a, e = core.Granted(&c.Call, now)
		}
		return e
	}))
	return a, ok
}

// keeps decides on a call that is to be sent once more; held is as of [run.Run.Keeps].
func (r *liveRun) keeps(c *call) (a run.Admission, moved run.Shift, held bool) {
	moved = r.does(func(core *run.Run, now time.Time) (e run.Effects) {
		c.compareAgain()
		a, held, e = core.Keeps(&c.Call, now)
		return e
	})
	return a, moved, held
}

// settle moves the run along the outcome of a call, which keeps the turn.
func (r *liveRun) settle(c *call, o policy.Outcome) (run.Entry, run.Shift, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Settle(&c.Call, o, time.Now())
}

// pass gives a call's turn to the one that has waited longest.
func (r *liveRun) pass(c *call) run.Shift {
	return r.does(func(core *run.Run, now time.Time) run.Effects { return core.Pass(&c.Call, now) })
}

// leave takes a call out of the turn or the queue without a step.
func (r *liveRun) leave(c *call) run.Shift {
	return r.does(func(core *run.Run, now time.Time) run.Effects { return core.Leave(&c.Call, now) })
}

// renew begins a run anew that is complete, migrate one that is stranded.
func (r *liveRun) renew() (moved run.Shift, ok bool) {
	moved = r.does(func(core *run.Run, now time.Time) (e run.Effects) { e, ok = core.Renew(now); return e })
	return moved, ok
}

func (r *liveRun) migrate() (moved run.Shift, ok bool) {
	moved = r.does(func(core *run.Run, now time.Time) (e run.Effects) { e, ok = core.Migrate(now); return e })
	return moved, ok
}
