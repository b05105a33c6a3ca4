package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// Serve takes one message of a stateless client, which stands alone; from is
// who sent it. It does not block: what it returns is as for [wire.Session].Handle,
// and a [wire.Cancellable].
func (p *Proxy) Serve(m *wire.Message, out wire.Stream, from observe.Peer) wire.Pending {
	if m.Kind != wire.Request {
		return nil // no notification or answer of a client means anything here
	}
	c := &call{m: m, out: out, client: bridge.Stateless, stateless: &stateless{from: from}}
	c.Who = wire.AsksOn(out)
	return p.serve(c)
}

// serve finds the session of a request, and sends it its way.
func (p *Proxy) serve(c *call) wire.Pending {
	if f := p.cfg.Protocol.Spoken().MetaFault(c.m); f != nil {
		return c.refuseOut(f.Code, f.Text, f.Data)
	}
	if fault := c.takeHandle(p); fault != "" {
		return c.refuseOut(wire.CodeInvalidRequest, fault, nil)
	}
	s, why := p.sessionFor(c)
	c.s = s
	s.meets(c.from.Principal)
	c.observe()
	if refusal := s.admit(c); refusal != "" {
		return c.turnedAway(refusal)
	}
	if c.crowdsOut() {
		c.s.run.Expect(c)
		return c.later(func() { c.whenRoom(func() wire.Pending { return c.onward(why) }) })
	}
	return c.onward(why)
}

// onward sends a stateless call its way that can be recorded; why it has no run, nil: it has.
func (c *call) onward(why *runs.Missing) wire.Pending {
	switch {
	case why == nil && c.ours(): // an answer to what the upstream asks, which passes while a drain lasts
		return c.comeBack()
	case c.s.p.drain.Begun.Load() && !c.servedInDrain() && (why == nil || why.At == nil):
		return c.tooLate()
	case why != nil:
		return c.refuseRunless(why)
	case c.own:
		return c.routed()
	case c.m.Method == "server/discover" && c.s.p.refusesDiscover():
		return c.refuseDiscover()
	}
	return c.onceOpen()
}

// refusesDiscover reports whether server/discover is refused, so that clients that know
// both ways have sessions: else each of their calls would need a handle, which nothing
// but a model asks for.
func (p *Proxy) refusesDiscover() bool {
	return p.cfg.Protocol == bridge.ProtocolAuto && p.handles != nil
}

// refuseDiscover refuses server/discover as a server with sessions does, upon which a client that
// knows them sends initialize (2026-07-28, basic/versioning, "Backward Compatibility").
// Nothing is asked of the upstream for it. If no session follows, the client may know no other revision:
// the first such request of a client's name is logged.
func (c *call) refuseDiscover() wire.Pending {
	name, _ := wire.Text(wire.Member(bridge.IntroductionIn(c.m).Info, "name"))
	if name = wire.Clip(name); c.s.p.unserved.First(name) {
		c.s.log.Info("server/discover was refused, so that the client begins a session; one that knows revision "+bridge.Revision+
			" alone needs --protocol both", c.about("client", name)...)
	}
	fault := bridge.SessionsOnly(c.m)
	c.seen.Failed(observe.Fault{RPC: fault.Code})
	return c.answerFailure(fault.Code, wire.ErrorAnswer(c.id(), fault.Code, fault.Text, fault.Data))
}

// Cancel implements wire.Cancellable: the client has closed the response stream.
// One that was answered, so that its client comes back, is not cancelled by that.
func (c *call) Cancel() {
	if in := c.flight.Input(); in == nil || !in.Left() {
		c.flight.Cancel(nil)
	}
}

// Protocol implements bridge.Piped.
func (s *session) Protocol() bridge.Protocol { return s.p.cfg.Protocol }

// ServeAlone implements bridge.Piped.
func (s *session) ServeAlone(on *bridge.Pipe, m *wire.Message, out wire.Stream) wire.Pending {
	c := &call{m: m, out: out, client: bridge.Stateless, stateless: &stateless{from: s.peer, pipe: on}}
	if !on.Enter(m.IDKey(), &c.flight) {
		return c.refuseOut(wire.CodeInvalidRequest, "a request with this id is still under way", nil)
	}
	rest := s.p.serve(c)
	if rest == nil {
		c.leavePipe()
	}
	return rest
}
