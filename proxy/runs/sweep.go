package runs

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// sweeping has the sweeper run. It is called with the lock held.
func (g *Registry) sweeping() {
	if g.stopped == nil {
		g.stop, g.stopped = make(chan struct{}), make(chan struct{})
		go g.sweep(g.stop)
	}
}

// stopSweeping ends the sweeper, if it runs, and waits for that.
func (g *Registry) stopSweeping() {
	g.mu.Lock()
	stopped := g.stopped
	if stopped != nil && g.stop != nil {
		close(g.stop)
		g.stop = nil
	}
	g.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

// sweep ends runs whose time has run out, until the Proxy is closed.
func (g *Registry) sweep(stop <-chan struct{}) {
	defer close(g.stopped)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	go func() {
		select {
		case <-stop:
			end()
		case <-ctx.Done():
		}
	}()
	every := min(max(min(g.cfg.Idle, cmp.Or(g.cfg.Age, g.cfg.Idle), cmp.Or(g.cfg.SessionIdle, g.cfg.Idle))/16, time.Second), time.Minute)
	var crowded <-chan struct{}
	if g.cfg.Store != nil {
		crowded = g.cfg.Store.Crowded()
	}
	g.readDue(ctx, time.Now().Add(every))
	g.forget(ctx, time.Now())
	abandoned := g.endAbandoned(ctx, time.Time{})
	g.bound(ctx)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-crowded:
			g.bound(ctx)
		case <-ticker.C:
			g.expireRuns(deadline.Now())
			g.readDue(ctx, time.Now().Add(every))
			g.forget(ctx, time.Now())
			abandoned = g.endAbandoned(ctx, abandoned)
			g.saveLimits(time.Now())
			g.bound(ctx)
		case <-stop:
			return
		}
	}
}

// expireRuns ends the runs that nobody has used for too long, or that are too old.
func (g *Registry) expireRuns(now time.Duration) {
	over := g.overdue(now)
	var sessions []Member
	n := 0
	g.mu.Lock()
	for _, r := range over {
		if r.ended.Load() || !r.expired(now, &g.cfg) { // it has been found since
			continue
		}
		n++
		on, _ := g.endLocked(r, g.cfg.over(r, now), run.Remark{})
		sessions = append(sessions, on...)
	}
	g.restApartLocked(now)
	g.mu.Unlock()
	closeAll(sessions)
	if n > 0 {
		g.cfg.Log.Info("runs have expired", "runs", n)
		if m := g.cfg.Telemetry.Meter; m != nil {
			m.RunsExpired(n)
		}
	}
}

// overdue are the runs whose time seems to have run out. They are looked at without
// the lock: no call waits for that.
func (g *Registry) overdue(now time.Duration) []*Run {
	g.mu.Lock()
	all := slices.AppendSeq(make([]*Run, 0, len(g.found)), maps.Values(g.found))
	g.mu.Unlock()
	return slices.DeleteFunc(all, func(r *Run) bool { return !r.expired(now, &g.cfg) })
}

// readDue reads the runs whose state's clock is due by a time: they move by it, as if somebody had used them.
func (g *Registry) readDue(ctx context.Context, by time.Time) {
	if g.cfg.Store == nil {
		return
	}
	asked, stop := context.WithTimeout(ctx, g.cfg.Store.Timeout())
	defer stop()
	keys, err := g.cfg.Store.Due(asked, by)
	if err != nil && ctx.Err() == nil {
		g.cfg.Log.Warn("it cannot be found out which runs' clocks are due: it is tried again soon", "error", err)
	}
	for _, key := range keys {
		if k := kindOf(key.Kind); k != Default && k != Session && ctx.Err() == nil { // a session's goes on with it
			_, _ = g.restore(runID{k, string(key.Hash[:])}) // what is wrong with one is logged
		}
	}
}

// forget has nothing kept any more of runs that ended, or were used last, longer ago than they are kept.
func (g *Registry) forget(ctx context.Context, now time.Time) {
	if g.cfg.Store == nil || g.cfg.KeepEnded == 0 && g.cfg.KeepIdle == 0 {
		return
	}
	before := func(kept time.Duration) (at time.Time) {
		if kept > 0 {
			at = now.Add(-kept)
		}
		return at
	}
	sessions := make(map[runID]bool)
	for _, r := range g.All() {
		sessions[r.at] = r.Key.Kind == Session
	}
	held := func(key journal.Key) bool {
		at := runID{kindOf(key.Kind), string(key.Hash[:])}
		g.mu.RLock()
		defer g.mu.RUnlock()
		return at.kind == Process || sessions[at] || g.found[at] != nil || g.loading[at] != nil
	}
	n, err := g.cfg.Store.Forget(ctx, before(g.cfg.KeepEnded), before(g.cfg.KeepIdle), held)
	if n > 0 {
		g.cfg.Log.Info("runs are kept no longer (--keep-completed, --keep-idle)", "runs", n)
	}
	if err != nil && ctx.Err() == nil {
		g.cfg.Log.Warn("it cannot be found out which runs are to be kept no longer: it is tried again soon", "error", err)
	}
}

// bound has nothing kept any more of runs that have ended, where more is kept than may be.
func (g *Registry) bound(ctx context.Context) {
	if g.cfg.Store == nil {
		return
	}
	making, stop := context.WithTimeout(ctx, time.Minute) // what is left is for the next time
	defer stop()
	n, err := g.cfg.Store.Bound(making)
	if n > 0 {
		g.cfg.Log.Info("runs that have ended are kept no longer: there are too many (--max-stored-runs, --max-store-size)", "runs", n)
	}
	if err != nil && ctx.Err() == nil {
		g.cfg.Log.Warn("it cannot be found out how much the store keeps, or no room be made: it is tried again soon", "error", err)
	}
}
