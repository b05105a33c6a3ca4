package run

import (
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// memory is what a run remembers beside its state. A nil memory is that of a run whose policy
// asks for nothing of it.
type memory struct {
	began, entered time.Time // the run, and its state
}

// newMemory returns the memory of a run that begins now.
func newMemory(p *policy.Policy, now time.Time) *memory {
	if !p.Guarded() {
		return nil
	}
	return &memory{began: now, entered: now}
}

// apply takes an entry into the memory.
func (m *memory) apply(e *Entry) {
	switch {
	case e.Type == Reset, e.Step.Restarted:
		m.began, m.entered = e.Time, e.Time
	case e.Step.Changed:
		m.entered = e.Time
	}
}

// facts are what guards see of the run.
func (m *memory) facts(state string) guard.Run {
	if m == nil {
		return guard.Run{State: state}
	}
	return guard.Run{State: state, Began: m.began, Entered: m.entered}
}

// Register implements [guard.Registers].
func (m *memory) Register(string) any { return nil }

// outcome says which outcome a call has by its result, and why that cannot be said.
func (c *Call) outcome(end End) (policy.Outcome, error) {
	facts := *c.facts
	facts.Result = end.Result
	return c.Verdict.Alternative.Outcome(end.Outcome, &facts)
}
