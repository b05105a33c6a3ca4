package proxy

import (
	"context"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/subscriptions"
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

// unsubscribed takes back a subscription that this call has entered.
func (c *call) unsubscribed() {
	if c.subscribes {
		c.s.wants.Leave(c.m.P.URI)
	}
}

func (c *call) unsubscribe() wire.Pending {
	if !c.s.wants.Has(c.m.P.URI) {
		return c.relayBound(policy.Resource, c.m.P.URI)
	}
	c.s.wants.Leave(c.m.P.URI)
	return c.relayUnlessKept()
}

// relayUnlessKept relays the end of a subscription, but of one that another
// session has over the same upstream.
func (c *call) relayUnlessKept() wire.Pending {
	if c.s.link.Kept(c.m.P.URI) {
		return c.result([]byte("{}"))
	}
	return c.relay()
}

// listen opens a stream of notifications, which ends when the client says so, or with
// the run or the proxy.
func (c *call) listen() wire.Pending {
	want, ok := bridge.Wanted(c.m)
	if !ok {
		return c.fail(wire.CodeInvalidParams, "params.notifications must be an object that names what to listen to")
	}
	got := want.Of(c.s.hello.Load().Offered, func(uri string) bool { return c.s.bound(policy.Resource, uri) })
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
	case <-c.cancellation():
	case <-s.p.drain.taking.Done():
	}
	s.listeners.Close(l)
	s.link.Tell(s, s.wants.Follow(s.listeners.URIs))
	if c.isCancelled() && !s.hasEnded() {
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
	if code, refusal := c.s.keep(keptLevel, c.m); refusal != "" {
		return c.fail(code, refusal)
	}
	c.s.wants.SetLevel(c.m)
	if c.s.link.Covered(c.s, c.m.P.Level) {
		return c.result([]byte("{}"))
	}
	return c.relay()
}

// levelTimeout bounds how long a call waits for the upstream to take its log level.
const levelTimeout = 5 * time.Second

// levelled has a stateless request go its way once an upstream with sessions logs
// at the level that the request asks for. A run's session raises its connection's level and
// never lowers it: what a request has not asked for is kept from it.
func (c *call) levelled() wire.Pending {
	if bridge.LogLevel(c.m) == "" || !c.s.hello.Load().Logs || !c.s.wants.Raise(bridge.LogLevel(c.m)) {
		return c.routed()
	}
	return c.later(func() {
		c.tellLevel()
		wait(c.routed())
	})
}

// tellLevel sets the session's level upstream, where another session over the same
// connection has not set it already. That it fails keeps no call from being made.
func (c *call) tellLevel() {
	level := c.s.wants.Level()
	if c.s.link.Covered(c.s, level.P.Level) {
		return
	}
	over := c.waiting()
	defer over()
	conn, err := c.s.link.Get()
	if err != nil {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), levelTimeout)
	defer stop()
	if _, err := conn.Start(level, nil).Wait(ctx); err != nil {
		c.s.log.Warn("setting the upstream's log level: its messages may be missing; the next connection is asked again", "error", err)
	}
}

// logged gives a log message of the upstream to who has asked for it: what comes with a
// stateless request is for that, what an upstream of its own says is for its session.
func (s *session) logged(m *wire.Message, c *call) {
	if c == nil && s.ofRun && !s.run.aside {
		c = s.asking()
	}
	asked := c == nil || !c.client.Stateless() || subscriptions.Covers(bridge.LogLevel(c.m), m.P.Level)
	if asked && (!s.link.Shared() || s.wants.Logs(m.P.Level)) {
		s.send(m.Raw, c)
	}
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
		s.run.tell(nil, s.run.does((*run.Run).RestartUnasked))
		does = "restarted"
	}
	s.log.Warn("the upstream connection was made anew", s.about("run", does)...)
	for _, k := range gatedLists {
		if s.shownLast(k).List != nil {
			s.upstreamChanged(conn, k)
		}
	}
}

// Disconnected implements subscriptions.Member.
func (s *session) Disconnected(conn *bridge.Upstream) { s.forgetAsks(conn) }

// AwaitsClient implements subscriptions.Member.
func (s *session) AwaitsClient() bool { return len(s.openAsks()) > 0 }

// sharedOpening introduces the proxy in either way to an upstream that all share. With a
// session is preferred: in it sampling and the like need no retries.
func (p *Proxy) sharedOpening() bridge.Opening {
	may := p.beginning().UpstreamMay()
	if !p.cfg.Streams {
		may = policy.UpstreamMay{}
	}
	capabilities := wire.Pick(bridge.Askable(hides(may)), func(string, []byte) []byte { return []byte("{}") })
	return bridge.Client{}.Opening(bridge.Introduction{Capabilities: capabilities, Info: p.clientInfo()})
}

// clientInfo is what the proxy calls itself towards upstreams.
func (p *Proxy) clientInfo() []byte {
	return append(wire.AppendString([]byte(`{"name":"fsm-proxy","version":`), p.cfg.Version), '}')
}
