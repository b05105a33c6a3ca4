package runs

import (
	"time"

	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// wind has the run moved by its state's clock when that is due, if ok, and else not.
func (r *Run) wind(due time.Time, ok bool) {
	switch {
	case r.clock == nil && r.unwound:
	case !ok, r.unwound:
		r.clock.Stop()
	case r.clock == nil:
		r.clock = time.AfterFunc(time.Until(due), r.ring)
	default:
		r.clock.Reset(time.Until(due))
	}
}

// unwind stops the run's clocks for good.
func (r *Run) unwind() {
	r.mu.Lock()
	defer r.unlock()
	if r.unwound = true; r.clock != nil {
		r.clock.Stop()
	}
	if r.telling != nil {
		r.telling.Stop()
	}
	r.tellLocked()
}

// ring moves the run by its state's clock, if that is due still. One that a call holds up comes when
// the turn is passed on.
func (r *Run) ring() {
	r.Tell(nil, run.Shifts{r.Do(func(core *run.Run, now time.Time) (e run.Effects) {
		if !r.unwound {
			e = core.Expire(now)
		}
		return e
	})})
}

// tellExpired tells operators of what clocks have done.
func (r *Run) tellExpired(entries []run.Entry) {
	for i := range entries {
		e := &entries[i]
		if e.Type != run.Expired || e.Pending() != nil {
			continue
		}
		from, to := e.By.StateName(e.Step.From.State), e.By.StateName(e.Step.Entered)
		r.of.cfg.Telemetry.Stepped(from, to, "after")
		r.of.cfg.Log.Info("transition", "run", r.Name, "from", from, "to", to, "after", time.Duration(e.By.After(e.Step.From.State).Seconds)*time.Second,
			"complete", e.Step.Terminal, "rule", e.By.After(e.Step.From.State).Rule.String())
	}
}
