package runs

import (
	"context"
	"errors"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
)

// limits is the table of what principals take of limits over all their runs: that of the store, where there is one.
func (c *Config) limits() *limit.Principals {
	if c.Store == nil {
		return limit.NewPrincipals(0)
	}
	return c.Store.Limits()
}

// loadLimits reads what principals have taken before the process was started, of a policy that may have been another one.
func (g *Registry) loadLimits() error {
	if err := g.cfg.Store.LoadLimits(context.Background(), time.Now()); err != nil {
		return err
	}
	g.shared.Principals.Adopt(g.Policy().LimitKey)
	return nil
}

// saveLimits has it kept what principals were given back, and nothing of those whose windows are over.
func (g *Registry) saveLimits(now time.Time) {
	if g.cfg.Store == nil {
		return
	}
	if err := g.cfg.Store.SaveLimits(now); err != nil && !errors.Is(err, journal.ErrClosed) {
		g.cfg.Log.Debug("what principals were given back of limits is not kept yet: it is tried again soon", "error", err)
	}
}
