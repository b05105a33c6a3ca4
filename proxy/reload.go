package proxy

import (
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Reloaded says what a reload did to the runs there are.
type Reloaded struct {
	Runs      int // that there are
	Moved     int // to the new policy, in the state of the same or the new name
	Pinned    int // that stay on the policy they began with, as the new one wants
	Waiting   int // that move when the call that holds their turn has ended
	Stranded  int // whose state is gone: kept
	Restarted int // whose state is gone: begun anew
	Refused   int // whose state is gone: refused from now on
}

// Reload puts a policy in force in place of the last one, whole, for every run.
// A call in flight is stepped by the policy that decided it; every call decided
// from now on is decided by the new one, or, where its run is left behind, by
// both. Clients are told of the lists whose shown bytes changed.
func (p *Proxy) Reload(next *policy.Policy) Reloaded {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	var done Reloaded
	for _, r := range p.enforce(next) {
		var fate run.Fate
		moved := r.does(func(core *run.Run, now time.Time) (e run.Effects) { fate, e = core.Reload(next, now); return e })
		if !r.aside {
			done.add(fate)
		}
		r.tell(moved, nil)
	}
	p.lists.Forget()
	p.noticeAgain(p.open())
	return done
}

// enforce makes next the policy that new runs begin with, and returns all others.
func (p *Proxy) enforce(next *policy.Policy) []*liveRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.policy.Store(next)
	return p.runsLocked()
}

func (d *Reloaded) add(f run.Fate) {
	d.Runs++
	switch f {
	case run.WasMoved:
		d.Moved++
	case run.WasPinned:
		d.Pinned++
	case run.WaitsForTurn:
		d.Waiting++
	case run.WasStranded:
		d.Stranded++
	case run.WasRestarted:
		d.Restarted++
	case run.WasRefused:
		d.Refused++
	}
}
