package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

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
func (m *Mode) UnmarshalText(text []byte) error { return unmarshal(m, text, modes) }

// MarshalText returns the word of the command line.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Mode is the mode in force.
func (p *Proxy) Mode() Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode
}

// beginning is where new runs begin.
func (p *Proxy) beginning() run.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return run.Snapshot{Policy: p.policy, At: p.policy.Initial(), Shadow: p.mode == Shadow}
}

// SetMode puts a mode in force for every run, and reports whether it was another
// one. A call under way ends by the mode in which it was decided; one that waits
// for its run's turn is decided anew, and in shadow waits no longer. Clients are
// told of the lists whose shown bytes changed. It is safe to call at any time.
func (p *Proxy) SetMode(m Mode) bool {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	runs, other := p.switchTo(m)
	if !other {
		return false
	}
	p.sayMode(m)
	for _, r := range runs {
		r.tell(r.setMode(m), nil)
	}
	p.lists.Forget()
	return true
}

func (p *Proxy) sayMode(m Mode) {
	if m == Shadow {
		p.cfg.Log.Warn("the policy is not enforced: in shadow nothing is refused, and what would have been is logged", "mode", m.String())
		return
	}
	p.cfg.Log.Info("the policy is enforced", "mode", m.String())
}

// switchTo makes m the mode that new runs begin with, and returns all others.
func (p *Proxy) switchTo(m Mode) (runs []*liveRun, other bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	other, p.mode = p.mode != m, m
	return p.runsLocked(), other
}

// setMode has calls decided in m from now on. In shadow nothing waits for the
// turn: a call that did is decided anew when its goroutine finds that it has come
// off the queue.
func (r *liveRun) setMode(m Mode) (moved shift) {
	r.mu.Lock()
	defer r.mu.Unlock()
	moved.from = r.placeLocked()
	r.shadow.Store(m == Shadow)
	if m == Shadow {
		for _, c := range r.queue {
			close(c.turn)
		}
		r.queue = nil
	}
	moved.to = r.placeLocked()
	return moved
}

// holds reports whether a call has the turn.
func (r *liveRun) holds(c *call) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder == c
}

// shadowStepLocked moves the run along the outcome of a call that was decided in
// shadow, and so took no turn: if nothing has moved the run since, and no call
// holds the turn that was decided before the mode changed. A reload is no move:
// the policy that decided the call steps it, and the one that the run has moved
// to meanwhile adopts the step.
func (r *liveRun) shadowStepLocked(c *call, o policy.Outcome) (taken step, err error) {
	if !c.Verdict.Turn || c.overlooked || r.holder != nil || r.moves != c.moves {
		return step{}, nil
	}
	by := c.Snapshot.Policy
	next, err := by.Next(c.Snapshot.At, c.Verdict.Symbol, o)
	if err != nil {
		return step{}, err
	}
	taken = step{Step: next, by: by}
	taken.from = r.placeLocked()
	if r.policy != by && !next.Restarted {
		to, ok := r.policy.Adopt(by, next.To)
		if !ok {
			return step{}, nil
		}
		next.To = to
	}
	r.arriveLocked(next)
	r.catchUpLocked()
	taken.to = r.placeLocked()
	return taken, nil
}
