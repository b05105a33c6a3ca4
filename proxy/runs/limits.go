package runs

import (
	"context"
	"errors"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
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

// ErrAgain is why a call is not sent that has begun: another process was sooner to take of its principal's limits. It is to leave,
// and to be entered once more.
var ErrAgain = errors.New("another process has taken of the same limits")

// maxTries is how often a call begins.
const maxTries = 50

// tookLimits has a call be sent only where what it takes of its principal's limits is in the store. The error is [ErrAgain] or
// [ErrUnwritten].
func (r *Run) tookLimits(c *run.Call) error {
	if !r.of.cfg.Store.Shared() {
		return nil
	}
	r.mu.Lock()
	who, taken := c.Personal()
	r.mu.Unlock()
	took, err := r.of.cfg.Store.TookLimits(who, taken)
	if took {
		return nil
	}
	if c.Tries++; err != nil || c.Tries >= maxTries {
		return ErrUnwritten
	}
	return ErrAgain
}

// limitReached has what is kept of a principal's limits be read anew of which a call was refused, where another process may have
// given something back: the next one is decided by that.
func (r *Run) limitReached(c *run.Call) {
	if store := r.of.cfg.Store; store.Shared() && store.MayReread(c.Principal()) {
		go func(who string) {
			if err := store.RereadLimits(who, true); err != nil && !errors.Is(err, journal.ErrClosed) {
				r.of.cfg.Log.Debug("what a principal has taken of limits cannot be read", "error", err)
			}
		}(c.Principal())
	}
}
