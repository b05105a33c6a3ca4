package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// Reload puts a policy in force in place of the last one, as [runs.Registry.Reload] does.
func (p *Proxy) Reload(next *policy.Policy) runs.Reloaded {
	done := p.Runs.Reload(next)
	p.lists.Forget()
	p.noticeAgain(p.open())
	return done
}

// Mode is the mode in force.
func (p *Proxy) Mode() Mode {
	if p.Runs.Shadow() {
		return Shadow
	}
	return Enforce
}

// SetMode puts a mode in force for every run, and reports whether it was another
// one, as [runs.Registry.SetShadow] does. Clients are told of the lists whose shown bytes
// changed. It is safe to call at any time.
func (p *Proxy) SetMode(m Mode) bool {
	if !p.Runs.SetShadow(m == Shadow, func() { p.sayMode(m) }) {
		return false
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

// SetLock puts a lock in force, and reports whether it holds tools to other
// definitions than the last one. It is compared with what the upstream lists
// already; clients are told of the lists whose shown bytes changed. Nil is no lock:
// then a policy with `pin: refuse` refuses every tool. It is safe to call at any
// time.
func (p *Proxy) SetLock(l *lock.Lock) bool {
	p.locking.Lock()
	defer p.locking.Unlock()
	was := p.lists.Pins.Load()
	if was.Same(l) {
		return false
	}
	p.lists.Pins.Store(catalogue.NewPins(l))
	for _, s := range p.open() {
		s.shown.Repinned(was)
	}
	p.lists.Forget()
	p.noticeAgain(p.open())
	return true
}

// notice logs what is new in a list that has come from the upstream.
func (p *Proxy) notice(v catalogue.View) {
	var argument *catalogue.Argument
	if p.handles != nil {
		argument = p.handles.Argument
	}
	now := p.Policy()
	differences, findings := p.lists.Notice(v, now, p.lists.Pins.Load(), argument)
	for _, d := range differences {
		p.tellDrift(now, d)
	}
	for _, f := range findings {
		if f.Level == policy.LevelNote {
			p.cfg.Log.Info("policy: " + f.String())
		} else {
			p.cfg.Log.Warn("policy: " + f.String())
		}
	}
}

func (p *Proxy) tellDrift(now *policy.Policy, d catalogue.Difference) {
	p.cfg.Telemetry.DefinitionChanged(d.Change)
	if d.Change == lock.Unlisted { // of which the findings tell
		return
	}
	does := "nothing is done about it"
	if now.Pin() == policy.PinRefuse {
		does = "the tool is hidden and refused"
	}
	p.cfg.Log.Warn("a tool is not what was locked: "+lock.Changes{d.Change}.Sentence()+"; "+does+
		"; look at it, and then run 'fsm-proxy lock'", "tool", wire.Clip(d.Tool), "change", d.Change.String())
}

// noticeAgain looks at what is cached already, with a new policy or a new lock.
func (p *Proxy) noticeAgain(sessions []*session) {
	if p.Policy().Pin() == policy.PinOff {
		return
	}
	for _, s := range sessions {
		if conn := s.link.Live(); conn != nil {
			if l := conn.Cached(wire.Tools); l != nil {
				p.notice(catalogue.View{List: l})
			}
		}
	}
}
