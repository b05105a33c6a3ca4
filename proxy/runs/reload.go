package runs

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/words"
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

// Reload puts a policy in force in place of the last one, whole, for every run but those in which one rules that came into
// force later, in another process.
// A call in flight is stepped by the policy that decided it; every call decided
// from now on is decided by the new one, or, where its run is left behind, by
// both. Sessions are told of the lists that changed.
func (g *Registry) Reload(next *policy.Policy) (done Reloaded) {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	g.mu.Lock()
	moves := g.moves(g.policy.Swap(next), next) // which new runs begin with
	all := g.allLocked()
	g.mu.Unlock()
	g.shared.Principals.Adopt(next.LimitKey)
	now := time.Now()
	for _, r := range all {
		if !moves(r) { // it is kept, and so counted
			done.Runs++
			continue
		}
		var fate run.Fate
		moved := r.do(func() time.Time { return now }, func(core *run.Run, now time.Time) (e run.Effects) {
			fate, e = core.Reload(next, now)
			return e
		})
		if !r.ForRunless {
			done.add(fate)
		}
		r.Tell(nil, run.Shifts{moved})
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

// Mode is whether the policy is enforced. The zero value enforces it.
type Mode uint8

// The modes.
const (
	Enforce Mode = iota
	// Shadow filters, refuses, queues and notifies nothing: clients see what they
	// would see on a direct connection. What would have been refused is logged and
	// counted, and steps no run; what would have been allowed steps it as ever.
	Shadow
)

var modes = []string{"enforce", "shadow"}

// String is the word of the command line.
func (m Mode) String() string { return modes[m] }

// UnmarshalText reads the word of the command line.
func (m *Mode) UnmarshalText(text []byte) error { return words.Read(m, text, modes) }

// MarshalText returns the word of the command line.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Mode is the mode in force.
func (g *Registry) Mode() Mode {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.mode
}

// SetMode puts a mode in force for every run, and reports whether it was another one. A call
// under way ends by the mode in which it was decided; one that waits for its run's turn is
// decided anew, and in shadow waits no longer. Sessions are told of the lists that changed.
func (g *Registry) SetMode(m Mode) bool {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	g.mu.Lock()
	other := g.mode != m
	g.mode = m // which new runs begin with
	all := g.allLocked()
	g.mu.Unlock()
	if !other {
		return false
	}
	g.sayMode(m)
	for _, r := range all {
		r.Tell(nil, run.Shifts{r.Do(func(core *run.Run, now time.Time) run.Effects {
			r.shadow.Store(m == Shadow)
			return core.SetShadow(m == Shadow, now)
		})})
	}
	return true
}

func (g *Registry) sayMode(m Mode) {
	if m == Shadow {
		g.cfg.Log.Warn("the policy is not enforced: in shadow nothing is refused, and what would have been is logged", "mode", m.String())
		return
	}
	g.cfg.Log.Info("the policy is enforced", "mode", m.String())
}

// Migrated says what [Registry.Migrate] did.
type Migrated struct {
	Runs      int // that there are
	Restarted int // that were stranded, and begin anew
	Unwritten int // that are stranded still: it could not be written, or not in time, that they begin anew
}

// Migrate has the runs that a reload has stranded begin anew at once, in the
// policy in force. A call under way that holds such a run's turn comes to its
// end, and steps nothing. Sessions are told of the lists that changed. It waits for all together no longer than the store's
// timeout.
func (g *Registry) Migrate() (done Migrated) {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	tell := func(r *Run, moved run.Shift, err error) {
		if err != nil {
			done.Unwritten++
			return
		}
		done.Restarted++
		r.Tell(nil, run.Shifts{moved})
	}
	waiting := make(map[*Run]written)
	for _, r := range g.All() {
		if !r.ForRunless {
			done.Runs++
		}
		switch moved, ok, w, err := r.migrate(); {
		case len(w.pending) > 0:
			waiting[r] = w
		case ok:
			tell(r, moved, err)
		}
	}
	if len(waiting) == 0 {
		return done
	}
	ctx, stop := context.WithTimeout(context.Background(), g.cfg.Store.Timeout())
	defer stop()
	for r, w := range waiting {
		moved, err := r.counts(w, waits(w, ctx.Done()))
		tell(r, moved, err)
	}
	return done
}

// Named returns the runs of a name, as [Info] has it. Names are short: there may be several.
func (g *Registry) Named(name string) []*Run {
	return slices.DeleteFunc(g.All(), func(r *Run) bool { return r.Name != name || r.ForRunless || r.ended.Load() })
}

// Has reports whether a run is there still.
func (g *Registry) Has(r *Run) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	_, ok := g.all[r]
	return ok && !r.ended.Load()
}

// Infos returns where the runs stand, ordered by name.
func (g *Registry) Infos() (infos []Info) {
	for _, r := range g.All() {
		if !r.ForRunless && !r.ended.Load() {
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
		if r.ForRunless {
			continue
		}
		i := r.Info()
		if runs[i.State]++; !i.Stranded.IsZero() {
			stranded++
		}
	}
	return runs, stranded
}
