package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/subscriptions"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

func (c *call) subscribe() wire.Pending {
	uri := c.m.P.URI
	if uri == "" {
		return c.fail(wire.CodeInvalidParams, "params.uri must be a string")
	}
	if !c.enterSubscription() {
		return c.fail(wire.CodeInvalidParams, tooManySubscriptions)
	}
	return c.relayBound(policy.Resource, uri)
}

const tooManySubscriptions = "too many subscriptions in this session"

// enterSubscription enters the subscription that a call asks for, and reports
// whether there is room for it.
func (c *call) enterSubscription() (ok bool) {
	c.subscribes, ok = c.s.link.Enter(c.s, c.m.P.URI, c.s.p.cfg.MaxSubscriptions)
	return ok
}

func (c *call) unsubscribe() wire.Pending {
	if !c.s.wants.Has(c.m.P.URI) {
		return c.relayBound(policy.Resource, c.m.P.URI)
	}
	c.s.wants.Leave(c.m.P.URI)
	return c.relayUnlessKept()
}

// listen opens a stream of notifications, which ends when the client says so, or with
// the run or the proxy.
func (c *call) listen() wire.Pending {
	want, ok := bridge.Wanted(c.m)
	if !ok {
		return c.fail(wire.CodeInvalidParams, "params.notifications must be an object that names what to listen to")
	}
	offered := c.s.shown.Hello.Load().Offered
	offered.Lists[wire.Tools] = offered.Lists[wire.Tools] || c.s.hasSignals()
	got := want.Of(offered, func(uri string) bool { return c.s.reaches(c.where(), policy.Resource, uri) })
	if len(got.URIs) > c.s.p.cfg.MaxSubscriptions {
		return c.fail(wire.CodeInvalidParams, "too many subscriptions in one stream")
	}
	l, acknowledged := c.s.listeners.Open(c.out, c.id(), got)
	if !acknowledged {
		c.s.listeners.Close(l)
		return c.fail(wire.CodeInvalidRequest, "subscriptions/listen is answered by an event stream: accept text/event-stream")
	}
	return c.later(func() { c.listening(l) })
}

// listening waits for the stream's end. Where the run or the proxy ends it the client
// gets the result, which says that nothing was lost (schema, SubscriptionsListenResult).
func (c *call) listening(l *bridge.Listener) {
	s := c.s
	s.link.Tell(s, s.wants.Follow(s.listeners.URIs))
	select {
	case <-c.flight.Cancellation():
	case <-s.p.drain.Taking.Done():
	}
	s.listeners.Close(l)
	s.link.Tell(s, s.wants.Follow(s.listeners.URIs))
	if c.flight.IsCancelled() && !s.Over() && s.p.drain.Taking.Err() == nil {
		c.answer(nil)
		return
	}
	c.result(bridge.Unlistened(c.id()))
}

// setLevel carries logging/setLevel, and keeps it for the connections to come.
// A shared upstream gets the most verbose level that any session wants.
func (c *call) setLevel() wire.Pending {
	if !subscriptions.IsLevel(c.m.P.Level) {
		return c.relay() // the upstream says what is wrong with it
	}
	if code, refusal := c.s.p.keeps.Keep(&c.s.kept, surface.Level, c.m); refusal != "" {
		return c.fail(code, refusal)
	}
	c.s.wants.SetLevel(c.m)
	if c.s.link.Covered(c.s, c.m.P.Level) {
		return c.result([]byte("{}"))
	}
	return c.relay()
}
