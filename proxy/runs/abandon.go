package runs

import (
	"context"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// endAbandoned ends the sessions that were there before the process was started, and that nobody has come back to for as
// long as sessions in memory may be idle, once it is time for that. It returns when it is again.
func (g *Registry) endAbandoned(ctx context.Context, due time.Time) (next time.Time) {
	now, idle := time.Now(), g.cfg.SessionIdle
	if g.cfg.Store == nil || idle <= 0 || now.Before(due) {
		return due
	}
	n, next, err := g.cfg.Store.Abandoned(ctx, now, idle, g.endSession)
	if n > 0 {
		g.cfg.Log.Info("sessions have ended that nobody has come back to since a restart (--session-idle)", "sessions", n)
	}
	switch {
	case err != nil:
		if ctx.Err() == nil {
			g.cfg.Log.Warn("it cannot be found out to which sessions nobody has come back: it is tried again soon", "error", err)
		}
		return due
	case next.IsZero(), next.After(now.Add(idle)):
		return now.Add(idle) // there may be one by then that could not be forgotten when it ended
	}
	return next
}

// endSession ends the run of a session that nobody comes back to, as if its client had ended it, and reports whether
// there is none any more.
func (g *Registry) endSession(key journal.Key) bool {
	r, why := g.restore(runID{Session, string(key.Hash[:])})
	if why != nil {
		return false
	}
	if r != nil {
		r.Tasks.End(false)
		g.Part(r, nil, false)
		return true
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return !g.closed // then it was not looked for
}
