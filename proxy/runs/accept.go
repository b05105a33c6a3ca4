package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// A run is shut where the store has something else of it than it has confirmed: it was restored, or failed over, or
// somebody else has written it. What was done since, in the world, is not in the store then: whether the run may go on as
// the store has it is for a person to say.

// Why a run is not accepted.
var (
	ErrOpen    = errors.New("the run is not shut: there is nothing to accept")
	ErrSession = errors.New("the run is of a session, which does not outlive it: end it, and have its client begin another")
)

// Accept has a run that is shut go on as the store has it: it is dropped, with the sessions on it, and read again. The
// error is an [ErrOpen], an [ErrSession], an [ErrUnwritten], or an [ErrDamaged]: what is kept is not what anybody has written.
func (g *Registry) Accept(r *Run, by run.Remark) (state string, err error) {
	if r.kept == nil || !r.isShut() {
		return "", ErrOpen
	}
	if r.Key.Kind == Session {
		return "", ErrSession
	}
	if g.cfg.Store.Down() != nil || !g.awaits(written{ticket: r.drop()}) {
		return "", ErrUnwritten
	}
	fault := g.readable(r.at)
	if fault != nil && fault != ErrEnded { // where it has ended in the store the next one can begin
		return "", fault
	}
	g.mu.Lock()
	if r.ended.Load() { // somebody else has accepted it
		g.mu.Unlock()
		return "", ErrOpen
	}
	on, _ := g.endLocked(r, unloaded, run.Remark{})
	if fault != nil {
		g.mu.Unlock()
		r.close(on)
		return "", fault
	}
	g.readLocked(r.at) // at once: nobody who asks for it meanwhile begins another
	g.mu.Unlock()
	r.close(on)
	again, why := g.restore(r.at)
	if why != nil || again == nil {
		return "", ErrUnwritten
	}
	_, _, _, err = again.durably(func(core *run.Run, now time.Time) (run.Effects, bool) { return core.Accept(by, now), true })
	return r.Where().State(), err
}

func (r *Run) isShut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.IsShut()
}

// drop has nothing more be written of the run.
func (r *Run) drop() *journal.Ticket {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept.Drop()
}

// readable reports why the run of a key cannot be read as it was written, whoever has written it; nil: it can.
func (g *Registry) readable(at runID) error {
	ctx, stop := context.WithTimeout(context.Background(), g.cfg.Store.Timeout())
	defer stop()
	_, ended, err := g.cfg.Store.Find(ctx, journal.Key{Kind: at.kind.String(), Hash: journal.Hash([]byte(at.id))})
	damaged, ok := errors.AsType[*durable.Damaged](err)
	switch {
	case ok:
		return fmt.Errorf("%w %w", ErrDamaged, damaged)
	case errors.Is(err, journal.ErrNone), ended:
		return ErrEnded
	case err != nil:
		return ErrUnwritten
	}
	return nil
}
