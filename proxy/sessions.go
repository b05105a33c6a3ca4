package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// A run has a session for stateless requests: all that find the run go through it, whoever
// sends them, over one connection upstream. It has no stream of its own but those that listen.

// newServer makes the session of a run's stateless requests.
func (p *Proxy) newServer(r *runs.Run) *session {
	all := &bridge.Listeners{}
	return p.newSession(&session{own: all, runPeers: runPeers{ofRun: true, listeners: all}, run: r})
}

// onceOpen has a request go its way once its run's session knows what the upstream offers.
func (c *call) onceOpen() wire.Pending {
	if c.s.shown.Hello.Load() != nil {
		return c.levelled()
	}
	c.s.run.Expect(c)
	return c.later(c.openRun)
}

func (c *call) openRun() {
	over := c.seen.Waiting()
	conn, err := c.s.openFor(c.m)
	over()
	if err != nil {
		c.seen.Failed(observe.Fault{Code: policy.UpstreamUnavailable})
		if err == link.ErrEnding {
			wait(c.tooLate())
			return
		}
		c.fail(wire.CodeInternal, "The upstream server is not available: "+err.Error()+". Nothing was done; try again later.")
		return
	}
	c.s.knows(conn.Hello())
	wait(c.levelled())
}

// levelled has a stateless request go its way once an upstream with sessions logs
// at the level that the request asks for. A run's session raises its connection's level and
// never lowers it: what a request has not asked for is kept from it.
func (c *call) levelled() wire.Pending {
	if bridge.LogLevel(c.m) == "" || !c.s.shown.Hello.Load().Logs || !c.s.wants.Raise(bridge.LogLevel(c.m)) {
		return c.routed()
	}
	return c.later(func() {
		over := c.seen.Waiting()
		if err := c.s.link.TellLevel(c.s); err != nil {
			c.s.log.Warn("setting the upstream's log level: its messages may be missing; the next connection is asked again", "error", err)
		}
		over()
		wait(c.routed())
	})
}

// openFor opens the session's connection, with the introduction of the client whose request is the first.
func (s *session) openFor(m *wire.Message) (*bridge.Upstream, error) {
	return s.link.OpenFor(s, s.p.greets.Opening(m, s.p.Runs.Beginning().UpstreamMayLater()))
}

// sharedOpening introduces the proxy to an upstream that all share.
func (p *Proxy) sharedOpening() bridge.Opening {
	if !p.cfg.Streams {
		return p.greets.SharedOpening(policy.UpstreamMay{})
	}
	return p.greets.SharedOpening(p.Runs.Beginning().UpstreamMayLater())
}

// knows settles what the upstream offers, once.
func (s *session) knows(m *wire.Message) {
	h := s.p.greets.Of(m)
	h.Operations, h.Begun = s.p.cfg.Telemetry.Operations(h.Version), deadline.Now()
	s.shown.Hello.CompareAndSwap(nil, h)
}

// sessionFor finds the session of a request's run. A request that needs none, and has
// none, goes to the session for those; so does one that is answered with why it has no run.
func (p *Proxy) sessionFor(c *call) (*session, *runs.Missing) {
	why, r := p.Runs.Beside(bridge.Stateless, &c.from), c.byTask(p)
	if why != nil {
		return p.forRunless(), why
	}
	if r == nil && !c.own {
		r, why = p.Runs.Find(bridge.Stateless, &c.from, c.handle, c.steps() || c.m.Method == "subscriptions/listen")
	}
	switch {
	case r == nil && p.handles != nil && p.Runs.Mode() == runs.Shadow:
		c.m = c.asSent()
		return p.forRunless(), nil
	case r == nil && why == runs.ErrNotFound && !c.steps() && p.Runs.Key(bridge.Stateless).Begins():
		return p.forRunless(), nil
	case r == nil:
		return p.forRunless(), why
	}
	m := r.Server()
	if m == nil {
		m, why = p.Runs.Serve(r, func() runs.Member { return p.newServer(r) })
	}
	if m == nil { // it has ended just now, or gone
		return p.forRunless(), why
	}
	return m.(*session), nil
}

// newSession makes a session whose run, stream and peer are given, and which is to join its run.
func (p *Proxy) newSession(s *session) *session {
	s.p, s.log, s.began = p, p.cfg.Log, deadline.Now()
	s.timer.Fire = s.expire
	s.link = p.uplinks.Of(s, s.ofRun)
	s.shown = surface.Shown{Source: &p.lists, Of: s}
	if s.ofRun {
		s.shown.Client = bridge.Stateless
	}
	s.shown.Changed = p.cfg.Notifier(s.shown.SendOwn)
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.closed = p.closed; !p.closed {
		p.sessions[s] = struct{}{}
	}
	return s
}
