package proxy

import (
	"context"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// complete carries completion/complete for what is bound now: a hidden name is
// not to be found out by a sibling method.
func (c *call) complete() wire.Pending {
	ref := c.m.P.Ref
	switch {
	case ref == nil:
	case ref.Type == "ref/prompt" && ref.Name != "":
		return c.relayBound(policy.Prompt, ref.Name)
	case ref.Type == "ref/resource" && ref.URI != "":
		return c.relayBound(policy.Resource, ref.URI)
	}
	return c.fail(wire.CodeInvalidParams, "params.ref must name a prompt or a resource")
}

func (c *call) subscribe() wire.Pending {
	uri := c.m.P.URI
	if uri == "" {
		return c.fail(wire.CodeInvalidParams, "params.uri must be a string")
	}
	if !c.s.enterSubscription(c, uri) {
		return c.fail(wire.CodeInvalidParams, "too many subscriptions in this session")
	}
	return c.relayBound(policy.Resource, uri)
}

func (c *call) unsubscribe() wire.Pending {
	if !c.s.subscribed(c.m.P.URI) {
		return c.relayBound(policy.Resource, c.m.P.URI)
	}
	c.s.leaveSubscription(c.m.P.URI)
	return c.relayUnlessWanted()
}

// relayUnlessWanted relays the end of a subscription, but of one that another
// session has over the same upstream.
func (c *call) relayUnlessWanted() wire.Pending {
	if c.s.p.shared != nil && c.s.wanted(c.m.P.URI) {
		return c.result([]byte("{}"))
	}
	return c.relay()
}

// relayOver relays a request over a connection, and reports false where it was not
// sent. Whether a subscription is to end is looked at here again: the request may
// have waited for the connection.
func (c *call) relayOver(conn *bridge.Upstream) (rest wire.Pending, ok bool) {
	switch wanted, sent := c.startUnlessWanted(conn); {
	case wanted:
		return c.doneWith([]byte("{}")), true
	case sent:
		return c.awaiting(c.relayed), true
	}
	return nil, false
}

// startUnlessWanted is start, but for the end of a subscription that another session
// has over the same upstream. One that comes to want it from now on asks after that.
func (c *call) startUnlessWanted(conn *bridge.Upstream) (wanted, sent bool) {
	if c.s.p.shared == nil || c.m.Method != "resources/unsubscribe" {
		return false, c.start(conn)
	}
	c.s.link.Subscribing.Lock()
	defer c.s.link.Subscribing.Unlock()
	if c.s.wanted(c.m.P.URI) {
		return true, false
	}
	return false, c.start(conn)
}

// relayBound relays a request about a name that is bound now.
func (c *call) relayBound(k policy.Kind, name string) wire.Pending {
	c.Kind, c.Name = k, name
	if conn := c.s.link.Live(); conn != nil {
		c.look(conn.Cached(listKind(k)))
	}
	if !c.Known {
		return c.later(c.boundFetched)
	}
	return c.relayIfBound()
}

func (c *call) boundFetched() {
	conn, err := c.connect()
	if err == nil {
		err = c.fetch(conn)
	}
	if err != nil {
		c.unsubscribed()
		c.unavailable(err)
		return
	}
	wait(c.relayIfBound())
}

func (c *call) relayIfBound() wire.Pending {
	at := c.s.run.where()
	c.Verdict = at.Decide(c.Kind, c.Name, c.Listed, nil)
	switch {
	case !c.Verdict.Bound:
		c.unsubscribed()
		return c.refuse(c.Verdict.Code)
	case c.m.Method == "resources/unsubscribe":
		return c.relayUnlessWanted()
	}
	return c.relay()
}

// unsubscribed takes back a subscription that this call has entered.
func (c *call) unsubscribed() {
	if c.subscribes {
		c.s.leaveSubscription(c.m.P.URI)
	}
}

// levels are the log levels of MCP, most verbose first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// setLevel carries logging/setLevel, and keeps it for the connections to come.
// A shared upstream gets the most verbose level that any session wants.
func (c *call) setLevel() wire.Pending {
	if !slices.Contains(levels, c.m.P.Level) {
		return c.relay() // the upstream says what is wrong with it
	}
	if code, refusal := c.s.keep(keptLevel, c.m); refusal != "" {
		return c.fail(code, refusal)
	}
	c.s.mu.Lock()
	c.s.level = c.m
	c.s.mu.Unlock()
	if c.s.p.shared != nil && c.s.p.shared.moreVerbose(c.s, c.m.P.Level) {
		return c.result([]byte("{}"))
	}
	return c.relay()
}

// wantsLog reports whether log messages of a level may go to the client whose call
// they came with: a stateless one gets those that its request has asked for.
func (c *call) wantsLog(level string) bool {
	if c == nil || !c.client.Stateless() {
		return true
	}
	least := slices.Index(levels, bridge.LogLevel(c.m))
	return least >= 0 && slices.Index(levels, level) >= least
}

// wantsLog reports whether a session has asked for log messages of a level. One
// that has set no level gets what comes.
func (s *session) wantsLog(level string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level == nil || slices.Index(levels, level) >= slices.Index(levels, s.level.P.Level)
}

// enterSubscription enters the subscription that a call asks for, and reports
// whether there is room for it.
func (s *session) enterSubscription(c *call, uri string) bool {
	s.link.Subscribing.Lock()
	defer s.link.Subscribing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.subscriptions[uri]; there {
		return true
	}
	if len(s.subscriptions) >= s.p.cfg.MaxSubscriptions {
		return false
	}
	if s.subscriptions == nil {
		s.subscriptions = make(map[string]struct{})
	}
	s.subscriptions[uri] = struct{}{}
	c.subscribes = true
	return true
}

// subscribedLocked are the subscriptions to make again. One whose call has not been
// sent yet goes its own way, on which it may be refused.
func (s *session) subscribedLocked() []string {
	var asked []string
	for _, c := range s.calls {
		if c.subscribes && !c.wasSent() {
			asked = append(asked, c.m.P.URI)
		}
	}
	uris := make([]string, 0, len(s.subscriptions))
	for uri := range s.subscriptions {
		if !slices.Contains(asked, uri) {
			uris = append(uris, uri)
		}
	}
	return uris
}

func (s *session) leaveSubscription(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subscriptions, uri)
}

func (s *session) subscribed(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.subscriptions[uri]
	return ok
}

// wanted reports whether anybody over the session's connection subscribes to a
// resource.
func (s *session) wanted(uri string) bool {
	if s.p.shared != nil {
		return s.p.shared.anySubscribed(uri)
	}
	return s.subscribed(uri)
}

// replay brings a new connection to where the last one was. again tells that
// there was one.
func (s *session) replay(conn *bridge.Upstream, again bool) {
	go s.watch(conn)
	if again {
		s.p.reconnected()
		s.restore(conn)
	}
}

// restore sends again what a lost connection knew: log level and subscriptions.
// What it lists may be another, and is compared.
func (s *session) restore(conn *bridge.Upstream) {
	s.log.Warn("the upstream connection was made anew", s.about("run", s.afterLoss())...)
	s.mu.Lock()
	level := s.level
	uris := s.subscribedLocked()
	var shown [len(gatedLists)]bool
	for k := range shown {
		shown[k] = s.shown[k].view.List != nil
	}
	s.mu.Unlock()
	if level != nil {
		redo(conn, level)
	}
	for _, uri := range uris {
		s.resubscribe(conn, uri)
	}
	for _, k := range gatedLists {
		if shown[k] {
			s.upstreamChanged(conn, k)
		}
	}
}

// afterLoss does to the run what the configuration says of a lost upstream of
// its own.
func (s *session) afterLoss() string {
	if !s.p.cfg.RestartRun || s.p.shared != nil {
		return "kept"
	}
	s.run.tell(nil, s.run.does((*run.Run).RestartUnasked))
	return "restarted"
}

// redo sends a request whose answer nobody waits for; the goroutine ends with
// the connection at the latest.
func redo(conn *bridge.Upstream, m *wire.Message) {
	call := conn.Start(m, nil)
	go func() { _, _ = call.Wait(context.Background()) }()
}

// watch ends what a connection has open at the client when it is lost. The
// goroutine ends with the connection.
func (s *session) watch(conn *bridge.Upstream) {
	s.p.lifetime(conn)
	s.forgetAsks(conn)
}
