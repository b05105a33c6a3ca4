package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
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

// pinsIn are the pins by which tools are shown where a run stands, nil where they need not
// be what was locked.
func (p *Proxy) pinsIn(at run.Snapshot) *pins {
	if at.Shadow || at.InForce().Pin() != policy.PinRefuse {
		return nil
	}
	return p.pins.Load()
}

// drift is what is hidden of a list since it is not as it was locked, nil for nothing.
func (p *pins) drift(l *wire.List) *lock.Drift {
	if p == nil || l.Kind != wire.Tools {
		return nil
	}
	return p.drifts.of(l)
}

// pinned reports whether the definition of what a call asks for has to be what was
// locked.
func (c *call) pinned() bool {
	return c.Kind == policy.Tool && c.Snapshot.InForce().Pin() == policy.PinRefuse
}

// drifted refuses a call that the policy allows, if what it asks for is not what
// was locked. The list is the one that decided everything else.
func (c *call) drifted() bool {
	switch {
	case !c.pinned() || c.offer == nil: // of which shadow alone takes no notice
		return false
	case !c.Listed:
		c.changes = lock.Changes{lock.Unlisted}
	default:
		c.changes = c.s.p.pins.Load().drifts.of(c.offer).Of(c.Name)
	}
	if c.changes == nil {
		return false
	}
	c.Verdict.Allowed, c.Verdict.Turn, c.Verdict.Code = false, false, policy.DefinitionChanged
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
	was, is := p.pins.Load(), newPins(l)
	if l.Same(was.lock) {
		return false
	}
	p.pins.Store(is)
	for _, s := range p.open() {
		s.repinned(was, is)
	}
	p.shown.forget()
	p.noticeAgain(p.open())
	return true
}

// repinned marks the list of tools if other pins show other bytes of it.
func (s *session) repinned(was, is *pins) {
	h, at := s.hello.Load(), s.run.where()
	if h != nil && h.lists[wire.Tools] && s.p.pinsIn(at) != nil && s.shows(wire.Tools, at, was, at, is) {
		s.changed.Mark(bit(wire.Tools))
	}
}
