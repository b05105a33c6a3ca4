package run

import (
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Fate is what a reload makes of a run.
type Fate uint8

// The fates.
const (
	WasMoved     Fate = iota // to the new policy, in the state of the same or the new name
	WasPinned                // it stays on the policy that it began with
	WaitsForTurn             // it moves when the call that has the turn has ended
	WasStranded              // its state is gone: it is kept
	WasRestarted             // its state is gone: it was begun anew
	WasRefused               // its state is gone: nothing is allowed until it moves
)

// Reload makes next the policy in force. The run moves at once if no call has the turn,
// else when that call has ended; the move is an entry when the run is next used, and at once where it begins what a run
// that lasts remembers, or follows another such move.
func (r *Run) Reload(next *policy.Policy, now time.Time) (f Fate, e Effects) {
	e.From = r.Snapshot(now)
	r.supersede()
	r.Policy = next
	f = WaitsForTurn
	if r.holder == nil {
		f, e.Ready = r.catchUp(now)
	}
	r.endVisit()
	e.To = r.Snapshot(now)
	return f, e
}

// Renew begins the run anew if it is complete.
func (r *Run) Renew(now time.Time) (e Effects, ok bool) {
	if !r.stands.At.Complete {
		return e, false
	}
	return r.Restart(now), true
}

// Migrate begins the run anew if it is stranded.
func (r *Run) Migrate(now time.Time) (e Effects, ok bool) {
	if r.stands.Stranded.IsZero() {
		return e, false
	}
	return r.Restart(now), true
}

// maxBetween is how many policies are kept for a run whose turn a call has. Beyond it the
// oldest is forgotten, and what it alone renames is stranded.
const maxBetween = 16

// supersede keeps the policy that was in force, if the run could not move to it and will
// need the new names that it gives to states.
func (r *Run) supersede() {
	if r.holder == nil || r.stands.Policy == r.Policy || !r.Policy.Renames() {
		return
	}
	if len(r.between) == maxBetween {
		r.between = slices.Delete(r.between, 0, 1)
	}
	r.between = append(r.between, r.Policy)
}

// heir is where the run stands under the policy in force: by way of those that came
// meanwhile, or else directly.
func (r *Run) heir() (at policy.Configuration, ok bool) {
	p, at := r.stands.Policy, r.stands.At
	for _, next := range r.between {
		if to, ok := next.Adopt(p, at); ok {
			p, at = next, to
		}
	}
	if at, ok = r.Policy.Adopt(p, at); ok || p == r.stands.Policy {
		return at, ok
	}
	return r.Policy.Adopt(r.stands.Policy, r.stands.At)
}

// follow moves a run whose turn nobody has to the policy in force, or does what that says
// of a run that it has no state for.
func (r *Run) follow(now time.Time) (f Fate, ready []*Call) {
	if r.Policy.OnReload() == policy.ReloadPin {
		r.strand(time.Time{})
		r.refused, r.between = false, nil
		return WasPinned, nil
	}
	m, tells := r.memory, !r.untold() && !r.finished
	if tells && m != nil && m.policy != r.asRecorded().Policy { // the policy between may have taken something of it
		r.use(now)
	}
	at, ok := r.heir()
	r.between = nil
	switch {
	case ok:
		r.place(Standing{Policy: r.Policy, At: at})
		r.remember(r.Policy, now)
		if tells && m == nil && r.memory != nil { // it begins now, and not when the run is used
			r.use(now)
		}
		r.refused = false
		return WasMoved, nil
	case r.Policy.Stranded() == policy.StrandedRestart:
		r.restart(now)
		return WasRestarted, r.refuseQueue()
	case r.stands.Stranded.IsZero():
		r.strand(now)
	}
	if r.refused = r.Policy.Stranded() == policy.StrandedRefuse; r.refused {
		return WasRefused, nil
	}
	return WasStranded, nil
}
