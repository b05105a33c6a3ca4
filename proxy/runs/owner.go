package runs

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Where several processes write the store, each run is one process's, for as long as that has its lease. Here are the runs
// that come from others, and go to them.

// away is a run that another process had when it was looked for last.
type away struct {
	why   *Missing
	until time.Duration // it is looked for again from then on, as deadline.Now
}

// staysAway is for how long a run that another process has is not looked for again, unless that one says that it has it no
// more, or cannot be reached.
const staysAway = 10 * time.Second

// awayLocked is why the run of a key is not here, as far as that is known; nil: it is to be looked for.
func (g *Registry) awayLocked(at runID) *Missing {
	a, ok := g.away[at]
	if ok && (a.why.At.Outdated() || deadline.Now() > a.until) {
		delete(g.away, at)
		return nil
	}
	return a.why
}

// noteAwayLocked notes why a run is not here.
func (g *Registry) noteAwayLocked(at runID, why *Missing) {
	if len(g.away) >= maxGone {
		clear(g.away)
	}
	g.away[at] = away{why, deadline.Now() + staysAway}
}

// Outdate has the run of a name be looked for again: another process says that nobody has it.
func (g *Registry) Outdate(run string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.away, func(_ runID, a away) bool { return a.why.At.Run == run })
}

// Away is why a session's run is not here, as far as that is known; nil: it is to be looked for.
func (g *Registry) Away(from *observe.Peer) *Missing {
	key := g.Key(bridge.Client{})
	if key.Kind == Default {
		key.Kind = Session
	}
	id, why := g.says(key, from, "")
	if why != nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.awayLocked(g.at(key.Kind, id))
}

// LookAgain is where a request is served that this process does not serve any more, or not now: it is to be looked again;
// one that is free is served by whichever other process can.
func LookAgain(free bool) error { return &journal.Elsewhere{Free: free} }

// AskAll is where a request is served of which nobody knows where that is.
func AskAll() error { return &journal.Elsewhere{Anywhere: true} }

// errLapsed is for a run that cannot be read since this process may not act by its lease now: whose it is is known soon.
func errLapsed() *Missing { return &Missing{errStore.Code, errStore.Text, &journal.Elsewhere{}} }

// over is why a run is not found any more that was found before: it goes on elsewhere, and is to be looked for, or has ended.
func (r *Run) over() *Missing {
	if r.Lost() {
		return errLapsed()
	}
	return ErrNotFound
}

// forsake has a run leave memory that this process has no more, or never had: the sessions on it go on where somebody has
// the run.
func (g *Registry) forsake(r *Run) {
	r.lost.Store(true)
	g.mu.Lock()
	on, _ := g.endLocked(r, unloaded, run.Remark{})
	g.mu.Unlock()
	g.ByTask.Forget(r)
	r.close(on)
}

// rules is the policy that decides alone in a run that goes by one of its own: the one in force here, unless the run's came
// into force later, in another process.
func (g *Registry) rules(inForce, own *policy.Policy) (*policy.Policy, error) {
	if g.cfg.Store == nil || own == inForce {
		return inForce, nil
	}
	ctx, stop := context.WithTimeout(context.Background(), g.cfg.Store.Timeout())
	defer stop()
	succeeds, err := g.cfg.Store.Succeeds(ctx, inForce, own)
	if err != nil || succeeds {
		return inForce, err
	}
	return own, nil
}

// moves tells which runs move to a policy that comes into force here in place of another one: not those in which one rules
// that came into force later, nor those of which that cannot be found out now.
func (g *Registry) moves(was, next *policy.Policy) func(*Run) bool {
	known := map[*policy.Policy]bool{was: true}
	return func(r *Run) bool {
		own := r.Rules()
		moves, is := known[own]
		if !is {
			rules, err := g.rules(next, own)
			moves = err == nil && rules == next
			known[own] = moves
		}
		return moves
	}
}

// LeaseLost has all runs leave memory that this process has had by a lease. When it returns nothing more is decided in them.
func (g *Registry) LeaseLost(lease int64) {
	g.cfg.Store.LeaseLost(lease) // of those that are being read, too
	all := slices.DeleteFunc(g.All(), func(r *Run) bool { return r.kept == nil || r.kept.Under() != lease })
	for _, r := range all {
		r.lost.Store(true)
	}
	g.cfg.Log.Warn("the lease of the database was lost: its runs are for any process to go on with (--lease)", "runs", len(all))
	go func() {
		for _, r := range all {
			g.forsake(r)
		}
	}()
}

// conflicts finds out why something of a run could not be written that others may write too: it has gone elsewhere, or it is
// not what was written, and stays shut.
func (g *Registry) conflicts(r *Run) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		ctx, stop := context.WithTimeout(context.Background(), g.cfg.Store.Timeout())
		left, err := r.kept.Left(ctx)
		stop()
		switch {
		case err == nil && left:
			if !r.Lost() {
				g.cfg.Log.Warn("another process has a run now", "run", r.Name)
				g.forsake(r)
			}
			return
		case err == nil:
			r.logShut(journal.ErrConflict)
			return
		case !g.Has(r):
			return
		}
		<-time.After(wait)
	}
}

// GiveAway gives runs away as soon as nothing is under way in them, for other processes to go on with, until the context
// ends: this process is ending. It takes none that nobody has.
func (g *Registry) GiveAway(ctx context.Context) {
	g.cfg.Store.End()
	ticker := time.NewTicker(giveAwayEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		all := slices.DeleteFunc(g.All(), func(r *Run) bool { return r.kept == nil || r.Lost() })
		for some := range slices.Chunk(all, givesAway) {
			_, _ = g.giveAway(ctx, some...) // later, where something is under way
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// How often it is looked whether something is still under way in runs that are to be given away, and how many are given at once.
const (
	giveAwayEvery = 20 * time.Millisecond
	givesAway     = 100
)

// ErrBusy is for a run in which something is under way.
var ErrBusy = errors.New("something is under way in the run")

// Release gives a run away that is kept, for others to go on with: for a while this process takes it only where none of the others
// does. The error is an [ErrBusy], or an [ErrUnwritten].
func (g *Registry) Release(ctx context.Context, r *Run) error {
	if busy, err := g.giveAway(ctx, r); err != nil || busy > 0 {
		return cmp.Or(err, ErrBusy)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noteAwayLocked(r.at, &Missing{errStore.Code, errStore.Text, &journal.Elsewhere{Run: r.Name}})
	return nil
}

// giveAway gives those runs away in which nothing is under way, and returns in how many something is. Where that cannot be
// written they are free when the lease is.
func (g *Registry) giveAway(ctx context.Context, some ...*Run) (busy int, err error) {
	var gone []*Run
	for _, r := range some {
		g.mu.Lock()
		if ctx.Err() != nil || !r.idles() {
			g.mu.Unlock()
			busy++
			continue
		}
		on, _ := g.endLocked(r, unloaded, run.Remark{})
		g.mu.Unlock()
		r.close(on)
		gone = append(gone, r)
	}
	var idle []*durable.Run
	for _, r := range gone {
		if waits(r.handedOver(), ctx.Done()) {
			idle = append(idle, r.kept)
		} else {
			err = ErrUnwritten
		}
	}
	if failed := g.cfg.Store.Release(ctx, idle...); failed != nil {
		err = ErrUnwritten
		if ctx.Err() == nil {
			g.cfg.Log.Warn("runs were not given away: others go on with them when the lease of this process is over", "runs", len(idle), "error", failed)
		}
	}
	for _, r := range gone {
		g.ByTask.Forget(r)
	}
	return busy, err
}

// idles reports whether no call is under way in a run: then none begins any more.
func (r *Run) idles() bool {
	for _, m := range r.on() {
		if m.Busy() {
			return false
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	holder, task := r.core.Holder()
	idle := (holder == nil || task) && r.core.Waiting() == 0 && r.begins.Load() == nil
	if idle {
		r.lost.Store(true)
	}
	return idle
}
