package runs

import (
	"slices"
	"strings"
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
// both. Sessions are told of the lists that changed.
func (g *Registry) Reload(next *policy.Policy) (done Reloaded) {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	g.mu.Lock()
	g.policy.Store(next) // which new runs begin with
	all := g.allLocked()
	g.mu.Unlock()
	for _, r := range all {
		var fate run.Fate
		moved := r.Do(func(core *run.Run, now time.Time) (e run.Effects) { fate, e = core.Reload(next, now); return e })
		if !r.Nobodys {
			done.add(fate)
		}
		r.Tell(nil, moved)
	}
	return done
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

// SetShadow has calls of every run decided in shadow, or not, and reports whether that is
// another way than before; then say is called before any run is changed. A call under way ends
// by the mode in which it was decided; one that waits for its run's turn is decided anew, and in
// shadow waits no longer.
func (g *Registry) SetShadow(shadow bool, say func()) bool {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	g.mu.Lock()
	other := g.shadow != shadow
	g.shadow = shadow // which new runs begin with
	all := g.allLocked()
	g.mu.Unlock()
	if !other {
		return false
	}
	say()
	for _, r := range all {
		r.Tell(nil, r.Do(func(core *run.Run, now time.Time) run.Effects {
			r.shadow.Store(shadow)
			return core.SetShadow(shadow, now)
		}))
	}
	return true
}

// Shadow reports whether calls are decided in shadow.
func (g *Registry) Shadow() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.shadow
}

// Migrated says what [Registry.Migrate] did.
type Migrated struct {
	Runs      int // that there are
	Restarted int // that were stranded, and begin anew
}

// Migrate has the runs that a reload has stranded begin anew at once, in the
// policy in force. A call under way that holds such a run's turn comes to its
// end, and steps nothing. Sessions are told of the lists that changed.
func (g *Registry) Migrate() (done Migrated) {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	for _, r := range g.All() {
		if !r.Nobodys {
			done.Runs++
		}
		if moved, ok := r.migrate(); ok {
			done.Restarted++
			r.Tell(nil, moved)
		}
	}
	return done
}

// Restart begins a run anew by its name, as [Info] has it, and reports where it
// stood, and whether it was there. A call under way that holds its turn comes to its
// end, and steps nothing.
func (g *Registry) Restart(name string) (state string, ok bool) {
	for _, r := range g.All() {
		if r.Name == name {
			moved := r.Do((*run.Run).Restart)
			r.Tell(nil, moved)
			return moved.From.State(), true
		}
	}
	return "", false
}

// Infos returns where the runs stand, ordered by name.
func (g *Registry) Infos() (infos []Info) {
	for _, r := range g.All() {
		if !r.Nobodys {
			infos = append(infos, r.Info())
		}
	}
	slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return infos
}

// Census counts the runs by the name of their state, and those of them whose state a reload
// took.
func (g *Registry) Census() (runs map[string]int, stranded int) {
	runs = make(map[string]int)
	for _, r := range g.All() {
		if r.Nobodys {
			continue
		}
		r.mu.Lock()
		at := r.core.Standing()
		r.mu.Unlock()
		runs[at.State()]++
		if !at.Stranded.IsZero() {
			stranded++
		}
	}
	return runs, stranded
}
