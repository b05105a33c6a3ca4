package proxy

import (
	"slices"
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
		moved, fate := r.reload(next)
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
	p.policy = next
	return p.runsLocked()
}

// Policy is the policy in force.
func (p *Proxy) Policy() *policy.Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.policy
}

// fate is what a reload makes of a run.
type fate uint8

const (
	moved fate = iota
	pinned
	waitsForTurn
	strandedKept
	strandedRestarted
	strandedRefused
)

func (d *Reloaded) add(f fate) {
	d.Runs++
	switch f {
	case moved:
		d.Moved++
	case pinned:
		d.Pinned++
	case waitsForTurn:
		d.Waiting++
	case strandedKept:
		d.Stranded++
	case strandedRestarted:
		d.Restarted++
	case strandedRefused:
		d.Refused++
	}
}

// reload makes next the policy in force for a run. It moves at once if no call
// holds its turn, else when that call has ended.
func (r *liveRun) reload(next *policy.Policy) (moved shift, f fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	moved.from = r.placeLocked()
	r.supersedeLocked()
	r.force = next
	f = waitsForTurn
	if r.holder == nil {
		f = r.catchUpLocked()
	}
	moved.to = r.placeLocked()
	return moved, f
}

// maxBetween is how many policies are kept for a run whose turn a call holds.
// Beyond it the oldest is forgotten, and what it alone renames is stranded.
const maxBetween = 16

// supersedeLocked keeps the policy that was in force, if the run could not move
// to it and will need the new names that it gives to states.
func (r *liveRun) supersedeLocked() {
	if r.holder == nil || r.policy == r.force || !r.force.Renames() {
		return
	}
	if len(r.between) == maxBetween {
		r.between = slices.Delete(r.between, 0, 1)
	}
	r.between = append(r.between, r.force)
}

// heirLocked is where the run stands under the policy in force: by way of those
// that came meanwhile, or else directly.
func (r *liveRun) heirLocked() (at policy.Configuration, ok bool) {
	p, at := r.policy, r.at
	for _, next := range r.between {
		if to, ok := next.Adopt(p, at); ok {
			p, at = next, to
		}
	}
	if at, ok = r.force.Adopt(p, at); ok || p == r.policy {
		return at, ok
	}
	return r.force.Adopt(r.policy, r.at)
}

// catchUpLocked moves a run that no call holds to the policy in force, or does
// what that says of a run that it has no state for.
func (r *liveRun) catchUpLocked() fate {
	switch {
	case r.policy == r.force:
		r.between = nil
		return moved
	case r.force.OnReload() == policy.ReloadPin:
		r.stranded, r.shut, r.between = time.Time{}, false, nil
		return pinned
	}
	to, ok := r.heirLocked()
	r.between = nil
	if !ok {
		return r.strandLocked()
	}
	r.policy, r.at, r.stranded, r.shut = r.force, to, time.Time{}, false
	return moved
}

func (r *liveRun) strandLocked() fate {
	if r.stranded.IsZero() {
		r.stranded = time.Now()
	}
	r.shut = r.force.Stranded() == policy.StrandedRefuse
	switch r.force.Stranded() {
	case policy.StrandedRestart:
		r.restartLocked()
		r.refuseQueueLocked()
		return strandedRestarted
	case policy.StrandedRefuse:
		return strandedRefused
	}
	return strandedKept
}

// placeLocked is where the run stands for whoever asks. While a call holds the
// turn of a run that will move, all others are decided where it will be.
func (r *liveRun) placeLocked() run.Snapshot {
	if r.runless {
		return run.Snapshot{Policy: r.force, At: r.force.Initial(), Runless: true, Shadow: r.shadow.Load()}
	}
	own := r.holdersLocked()
	own.Shadow = r.shadow.Load()
	if r.policy != r.force && r.holder != nil && r.force.OnReload() != policy.ReloadPin {
		if at, ok := r.heirLocked(); ok {
			return run.Snapshot{Policy: r.force, At: at, Shadow: own.Shadow}
		}
	}
	return own
}

// holdersLocked is where the run stands for the call that holds its turn: in its own
// state, by its own policy and by the one in force.
func (r *liveRun) holdersLocked() run.Snapshot {
	s := run.Snapshot{Policy: r.policy, At: r.at, Refused: r.shut || r.expiredLocked()}
	if r.policy != r.force {
		s.Gate = r.force
	}
	return s
}

// expiredLocked reports whether the run has been stranded for too long.
func (r *liveRun) expiredLocked() bool {
	return !r.stranded.IsZero() && time.Since(r.stranded) > r.patience
}
