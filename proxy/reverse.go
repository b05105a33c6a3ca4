package proxy

import (
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/asks"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// send gives the client a message: on the stream of the call it belongs to, or
// else on the session's own.
func (s *session) send(raw []byte, c *call) bool {
	return c != nil && c.stream(false).Send(raw) || s.own.Send(raw)
}

// SendAsk implements asks.Client.
func (s *session) SendAsk(raw []byte, of asks.For) bool {
	c, _ := of.(*call)
	return c != nil && c.stream(true).Send(raw) || s.own.Send(raw)
}

// Unanswered implements asks.Client.
func (s *session) Unanswered(method string) {
	s.log.Warn("a client did not answer a request of the upstream in time (--ask-timeout)", s.About("method", wire.Clip(method))...)
}

// asking guesses for which call an upstream asks that does not say: nil where several
// principals have been here, since it may be late, and of a call that has ended.
func (s *session) asking() *call {
	c := s.likeliest()
	if s.mixed.Load() { // which is written before a call can be found
		return nil
	}
	return c
}

// likeliest is the call that holds the turn, else the only or the oldest one that the
// upstream works on.
func (s *session) likeliest() *call {
	holder, running := s.run.Holder()
	if c, ok := holder.(*call); ok && c.s == s {
		return c
	}
	var oldest *call
	for _, c := range s.underWay() {
		if running != nil && c.m.P.TaskID == running.ID && c.m.Method == "tasks/result" {
			return c // on which it is asked for a task
		}
		if !c.flight.Deadline.Started().IsZero() && c.gated && (oldest == nil || c.flight.Deadline.Started().Before(oldest.flight.Deadline.Started())) {
			oldest = c
		}
	}
	return oldest
}

// meets notes who is asking, before the request is one of those under way.
func (s *session) meets(who wire.Principal) {
	switch first := s.first.Load(); {
	case s.mixed.Load() || first != nil && *first == who:
	case first == nil && s.first.CompareAndSwap(nil, new(who)):
	case *s.first.Load() != who:
		s.mixed.Store(true)
	}
}

// asked carries a request of the upstream to the client.
func (s *session) asked(conn *bridge.Upstream, m *wire.Message, c *call) {
	if s.ofRun && (c == nil || !c.steps() || c.flight.IsAnswered() || s.run.ForRunless && !s.p.cfg.Streams || !bridge.Declares(c.m, m.Method)) ||
		!s.mayAsk(m.Method) && !s.overlooksAsk(m.Method) {
		s.p.asks.Reject(conn, m.Bytes(m.ID), wire.CodeMethodNotFound, "Method not found: "+wire.Clip(m.Method))
		return
	}
	var of asks.For
	if c != nil {
		of = c
	}
	s.asks.Ask(&s.p.asks, s, conn, m, of)
}

// mayAsk reports whether the policy lets the upstream ask so now, in the state of the run.
func (s *session) mayAsk(method string) bool {
	h := s.shown.Hello.Load()
	if h == nil {
		return false
	}
	name := bridge.AskedBy(method)
	if name == "" {
		return s.policyNow().Passthrough(method)
	}
	return h.May.Permits(name) && s.run.Where().Lets().Permits(name)
}

// overlooksAsk reports whether the upstream may ask a client what the policy
// would refuse.
func (s *session) overlooksAsk(method string) bool {
	if s.shown.Hello.Load() == nil || !s.run.Shadow() {
		return false
	}
	s.log.Info(wouldBeRefused, s.About("code", policy.NotAvailable.String(), "method", wire.Clip(method), "why", notCarried)...)
	s.p.cfg.Telemetry.ShadowRefused(policy.NotAvailable)
	return true
}

// reaches reports whether a name may be asked for where the run stands.
func (s *session) reaches(at run.Snapshot, k policy.Kind, name string) bool {
	listed := true
	if conn := s.link.Live(); conn != nil {
		if l := conn.Cached(surface.ListOf(k)); l != nil {
			listed = l.Has(name)
		}
	}
	return at.Reaches(k, name, listed)
}

// asksTooMuch reports whether an answer asks the client for what the policy does not let
// the upstream ask: by an "input required" result, in the state of a task, or by the
// error that sends the user to a URL.
func (c *call) asksTooMuch(m *wire.Message, meaning bridge.Meaning) bool {
	method, excess := "", false
	switch {
	case m.Kind == wire.Failure:
		method = "elicitation/create"
		excess = m.ErrorCode == wire.CodeURLElicitation && !c.s.run.Where().Lets().Permits("elicitation")
	case meaning == bridge.InputRequired, meaning == bridge.Task, strings.HasPrefix(c.m.Method, "tasks/"):
		method, excess = asks.Excess(m.Bytes(m.Result), c.s.mayAsk)
	}
	return excess && !c.s.overlooksAsk(method)
}

// giveUnfinished gives the client an answer that is no result yet, or may be none, where that
// means something else to it, or is not to reach it.
func (c *call) giveUnfinished(m *wire.Message, meaning bridge.Meaning) (wire.Pending, bool) {
	if meaning == bridge.Task && !c.client.Follows(c.server) && !c.client.Stateless() {
		return c.answer(wire.ResultAnswer(c.id(), refusal.OutOfReach(c.Kind, c.Name))), true
	}
	if c.asksTooMuch(m, meaning) {
		return c.denyAsk(m, meaning), true
	}
	if asked := c.client.Visit(c.m, m); asked != nil {
		return c.answer(asked), true
	}
	return nil, false
}

// denyAsk answers a call in place of an answer that asks its client too much.
func (c *call) denyAsk(m *wire.Message, meaning bridge.Meaning) wire.Pending {
	switch {
	case m.Kind == wire.Failure:
		return c.fail(wire.CodeInternal, "The server asks the user to visit a URL, which the policy does not let it. Nothing was done.")
	case c.gated && meaning == bridge.Task:
		c.s.log.Warn("a call was sent and may have happened: its outcome is unknown",
			c.aboutTarget(nil, "reason", "it has begun a task that asks the client for what upstream_may does not let it")...)
		c.interrupted(policy.OutcomeUnknown, refusal.Called(c.Kind, c.Name)+" was begun as a task that "+
			"asks the client for what the policy does not let it; it may still happen, or wait for ever.")
	default:
		c.unavailable(refusal.ErrAsksTooMuch)
	}
	return nil
}
