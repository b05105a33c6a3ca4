package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// compare finds out whether the tool that is called is what was locked. The list is the one
// that decides everything else.
func (c *call) compare() {
	c.Locked = run.AsLocked
	if c.changes = c.s.p.pins.Load().Changes(c.offer, c.Name); c.changes != nil {
		c.Locked = run.Differs
	}
}

// handled reports whether the call has to be of a tool that can take the argument.
func (c *call) handled() bool {
	return c.s.p.handles != nil && c.client.Stateless() && c.Kind == policy.Tool
}

// unfit reports whether the call was refused since its tool cannot take the argument.
func (c *call) unfit() bool {
	return c.Misfit && c.Verdict.Bound && c.Verdict.Code == policy.NotAvailable && !c.Outlived
}

// validated reports whether the policy wants the call's arguments checked.
func (c *call) validated() bool { return c.Kind == policy.Tool && c.Snapshot.InForce().Validate() }

// invalid says why the call's arguments do not fit the listed input schema, where the
// policy asks for that; "": they do. In shadow there may be no list to go by.
func (c *call) invalid() string {
	if !c.validated() {
		return ""
	}
	return c.s.p.lists.Check(c.offer, c.Name, c.m.Bytes(c.m.P.Arguments))
}

// headed is the stream of a call of a tool whose headers are to say what its
// arguments do; nil: none is.
func (c *call) headed() wire.HeadedStream {
	if !c.client.Stateless() || c.Kind != policy.Tool || c.m.Method != "tools/call" {
		return nil
	}
	out, _ := c.out.(wire.HeadedStream)
	return out
}

// headerFault says in what a call's headers and its arguments differ; empty: in
// nothing.
func (c *call) headerFault() string {
	out := c.headed()
	if out == nil || c.offer == nil {
		return ""
	}
	return c.s.p.lists.HeaderFault(c.offer, c.Name, c.m.Bytes(c.m.P.Arguments), out.Headers)
}

// SetLock puts a lock in force, and reports whether it holds tools to other
// definitions than the last one. It is compared with what the upstream lists
// already; clients are told of the lists whose shown bytes changed. Nil is no lock:
// then a policy with `pin: refuse` refuses every tool. It is safe to call at any
// time.
func (p *Proxy) SetLock(l *lock.Lock) bool {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	was := p.pins.Load()
	if was.Same(l) {
		return false
	}
	p.pins.Store(catalogue.NewPins(l))
	for _, s := range p.open() {
		now := s.look(s.run.where(), s.static())
		before := now
		before.Pins = was
		s.changed.Mark(s.differ(before, now))
	}
	p.lists.Forget()
	p.noticeAgain(p.open())
	return true
}

// notice logs what is new in a list that has come from the upstream.
func (p *Proxy) notice(v catalogue.View) {
	var argument *catalogue.Argument
	if p.handles != nil {
		argument = p.handles.argument
	}
	now := p.Policy()
	differences, findings := p.lists.Notice(v, now, p.pins.Load(), argument)
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
	p.cfg.Telemetry.definitionChanged(d.Change)
	if d.Change == lock.Unlisted { // of which the findings tell
		return
	}
	does := "nothing is done about it"
	if now.Pin() == policy.PinRefuse {
		does = "the tool is hidden and refused"
	}
	p.cfg.Log.Warn("a tool is not what was locked: "+lock.Changes{d.Change}.Sentence()+"; "+does+
		"; look at it, and then run 'fsm-proxy lock'", "tool", clip(d.Tool), "change", d.Change.String())
}

// noticeAgain looks at what is cached already, with a new policy or a new lock.
func (p *Proxy) noticeAgain(sessions []*session) {
	if p.Policy().Pin() == policy.PinOff {
		return
	}
	for _, s := range sessions {
		if conn := s.link.live(); conn != nil {
			if l := conn.Cached(wire.Tools); l != nil {
				p.notice(catalogue.View{List: l})
			}
		}
	}
}
