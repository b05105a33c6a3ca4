package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// pins are the locked definitions, and what is no longer as it was locked in lists
// of tools. They are safe for concurrent use.
type pins struct {
	lock   *lock.Lock // nil: there is none, and so no tool is what was locked
	drifts perList[*lock.Drift]
}

func newPins(l *lock.Lock) *pins {
	return &pins{lock: l, drifts: perList[*lock.Drift]{most: 256, read: l.Compare}}
}

// drift is what is hidden of a list here since it is not as it was locked, nil for
// nothing.
func (w place) drift(l *wire.List) *lock.Drift {
	if w.pins == nil || w.shadow || l.Kind != wire.Tools {
		return nil
	}
	return w.pins.drifts.of(l)
}

// pinned reports whether the definition of what a call asks for has to be what was
// locked.
func (c *call) pinned() bool { return c.place.pins != nil && c.kind == policy.Tool }

// drifted refuses a call that the policy allows, if what it asks for is not what
// was locked. The list is the one that decided everything else.
func (c *call) drifted() bool {
	switch {
	case !c.pinned() || c.offer == nil: // of which shadow alone takes no notice
		return false
	case !c.listed:
		c.changes = lock.Changes{lock.Unlisted}
	default:
		c.changes = c.place.pins.drifts.of(c.offer).Of(c.name)
	}
	if c.changes == nil {
		return false
	}
	c.verdict.Allowed, c.verdict.Turn, c.verdict.Code = false, false, policy.DefinitionChanged
	return true
}

// SetLock puts a lock in force, and reports whether it holds tools to other
// definitions than the last one. It is compared with what the upstream lists
// already; clients are told of the lists whose shown bytes changed. Nil is no lock:
// then a policy with `pin: refuse` refuses every tool. It is safe to call at any
// time.
func (p *Proxy) SetLock(l *lock.Lock) bool {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	runs, next := p.pin(l)
	if next == nil {
		return false
	}
	for _, r := range runs {
		r.tell(r.setPins(next), nil)
	}
	p.shown.forget()
	p.noticeAgain(p.open())
	return true
}

// pin makes a lock the one that new runs begin with, and returns all others,
// and the pins, nil for those that there are.
func (p *Proxy) pin(l *lock.Lock) ([]*run, *pins) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.Same(p.pins.lock) {
		return nil, nil
	}
	p.pins = newPins(l)
	return p.runsLocked(), p.pins
}

func (r *run) setPins(next *pins) (moved shift) {
	r.mu.Lock()
	defer r.mu.Unlock()
	moved.from = r.placeLocked()
	r.pins = next
	moved.to = r.placeLocked()
	return moved
}
