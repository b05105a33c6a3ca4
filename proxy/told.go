package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/subscriptions"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// Told implements subscriptions.Member: this file is what a session does with what the upstream
// says besides answers.
func (s *session) Told(conn *bridge.Upstream, m *wire.Message, tag any) {
	c, _ := tag.(*call)
	switch {
	case m.Kind != wire.Request:
		s.notified(conn, m, c)
	case c == nil:
		s.asked(conn, m, s.asking())
	default:
		s.asked(conn, m, c)
	}
}

// notified takes a notification of the upstream.
func (s *session) notified(conn *bridge.Upstream, m *wire.Message, c *call) {
	if s.run.Shadow() && s.unfiltered(m, c) {
		return
	}
	if k, ok := surface.ListChanged(m.Method); ok {
		s.shown.Compare(conn, k)
		return
	}
	switch m.Method {
	case "notifications/resources/updated":
		if s.wants.Has(m.P.URI) && s.reaches(s.Where(), policy.Resource, m.P.URI) {
			s.updated(m, c)
		}
	case "notifications/cancelled":
		s.asks.Cancelled(s, conn, m)
	case "notifications/message":
		s.logged(m, c)
	case "notifications/tasks/status":
		s.taskTold(conn, m)
	case "notifications/progress", "notifications/elicitation/complete":
		s.send(m.Raw, c)
	default:
		if s.policyNow().Passthrough(m.Method) {
			s.send(m.Raw, c)
			return
		}
		s.log.Debug("dropped a notification of the upstream", "method", wire.Clip(m.Method))
	}
}

// unfiltered gives the client a notification of the upstream's as it came. It
// reports false where there is more to do: for one that has to be mapped, or shared
// out, first, and for a list that has changed.
func (s *session) unfiltered(m *wire.Message, c *call) bool {
	_, ofList := surface.ListChanged(m.Method)
	switch {
	case m.Method == "notifications/cancelled":
		return false
	case s.link.Shared() && m.Method == "notifications/message":
		return false
	case s.ofRun && (ofList || m.Method == "notifications/resources/updated"):
		s.own.Send(m.Raw) // who listens has said for what
	case !s.link.Shared() || m.Method != "notifications/resources/updated" || s.wants.Has(m.P.URI):
		s.send(m.Raw, c)
	}
	return !ofList // which is to be looked at, too
}

// logged gives a log message of the upstream to who has asked for it: what comes with a
// stateless request is for that, what an upstream of its own says is for its session.
func (s *session) logged(m *wire.Message, c *call) {
	if c == nil && s.ofRun && !s.run.ForRunless {
		c = s.asking()
	}
	asked := c == nil || !c.client.Stateless() || subscriptions.Covers(bridge.LogLevel(c.m), m.P.Level)
	if asked && (!s.link.Shared() || s.wants.Logs(m.P.Level)) {
		s.send(m.Raw, c)
	}
}

// updated tells the client that a resource has changed.
func (s *session) updated(m *wire.Message, c *call) {
	if s.ofRun {
		s.own.Send(m.Raw)
		return
	}
	s.send(m.Raw, c)
}

// Member implements subscriptions.Tag.
func (c *call) Member() subscriptions.Member { return c.s }

// Wants implements subscriptions.Member.
func (s *session) Wants() *subscriptions.Wants { return &s.wants }

// Reconnected implements subscriptions.Member: the run begins anew where the configuration
// says so of a lost upstream of its own, and what the new one lists may be another.
func (s *session) Reconnected(conn *bridge.Upstream) {
	does := "kept"
	if s.p.cfg.RestartRun && !s.link.Shared() {
		s.run.Tell(nil, run.Shifts{s.run.Do((*run.Run).RestartUnasked)})
		does = "restarted"
	}
	s.log.Warn("the upstream connection was made anew", s.About("run", does)...)
	s.shown.CompareAll(conn)
}

// Disconnected implements subscriptions.Member.
func (s *session) Disconnected(conn *bridge.Upstream) {
	s.asks.Withdraw(s, conn, "the upstream server has gone")
}

// AwaitsClient implements subscriptions.Member.
func (s *session) AwaitsClient() bool { return s.asks.Any() }
