package proxy

import (
	"time"

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
	return run.Snapshot{Policy: p.Policy(), At: p.Policy().Initial(), Shadow: p.mode == Shadow}
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

// setMode has calls decided in m from now on: those that waited for the turn enter again.
func (r *liveRun) setMode(m Mode) run.Shift {
	return r.does(func(core *run.Run, now time.Time) run.Effects {
		r.shadow.Store(m == Shadow)
		return core.SetShadow(m == Shadow, now)
	})
}
