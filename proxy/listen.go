package proxy

import (
	"context"
	"slices"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// listeners are the subscriptions/listen streams of a run's session. As a wire.Stream they
// are its own: a message goes to each of those that asked for its kind. What
// nobody asked for is not kept: who listens later reads the lists first.
type listeners struct {
	mu  sync.Mutex // guards what follows
	all []*listener
}

// listener is one such stream: what it has asked for, and got.
type listener struct {
	c     *call
	lists [3]bool // by wire.ListKind
	uris  []string
	begun chan struct{} // closed when its acknowledgement is out, which comes first
}

// listen opens a stream of notifications, which ends when the client says so, or with
// the run or the proxy.
func (c *call) listen() wire.Pending {
	want, ok := bridge.Wanted(c.m)
	if !ok {
		return c.fail(wire.CodeInvalidParams, "params.notifications must be an object that names what to listen to")
	}
	l := c.heard(&want)
	if len(l.uris) > c.s.p.cfg.MaxSubscriptions {
		return c.fail(wire.CodeInvalidParams, "too many subscriptions in one stream")
	}
	c.s.listeners.add(l)
	acknowledged := c.out.Send(bridge.Acknowledgement(l.got(), c.id()))
	close(l.begun)
	if !acknowledged {
		c.s.listeners.remove(l)
		return c.fail(wire.CodeInvalidRequest, "subscriptions/listen is answered by an event stream: accept text/event-stream")
	}
	return c.later(func() { c.listening(l) })
}

// heard is what a filter gets: the lists that there are, and the resources that
// are bound now.
func (c *call) heard(want *bridge.Notifications) *listener {
	h := c.s.hello.Load()
	l := &listener{c: c, begun: make(chan struct{})}
	l.lists[wire.Tools] = want.Tools && h.Lists[wire.Tools]
	l.lists[wire.Prompts] = want.Prompts && h.Lists[wire.Prompts]
	l.lists[wire.Resources] = want.Resources && h.Lists[wire.Resources]
	if !h.Lists[wire.Resources] {
		return l
	}
	for _, uri := range want.URIs {
		if !slices.Contains(l.uris, uri) && c.s.bound(policy.Resource, uri) {
			l.uris = append(l.uris, uri)
		}
	}
	return l
}

// listening waits for the stream's end. Where the run or the proxy ends it the client
// gets the result, which says that nothing was lost (schema, SubscriptionsListenResult).
func (c *call) listening(l *listener) {
	c.s.subscribe()
	select {
	case <-c.cancellation():
	case <-c.s.p.drain.taking.Done():
	}
	c.s.listeners.remove(l)
	c.s.subscribe()
	if c.isCancelled() && !c.s.hasEnded() {
		c.answer(nil)
		return
	}
	c.result(bridge.Unlistened(c.id()))
}

// got is what the stream is told of.
func (l *listener) got() bridge.Notifications {
	return bridge.Notifications{Tools: l.lists[wire.Tools], Prompts: l.lists[wire.Prompts], Resources: l.lists[wire.Resources], URIs: l.uris}
}

// wants reports whether a notification is one that the stream asked for.
func (l *listener) wants(m *wire.Message) bool {
	for _, k := range gatedLists {
		if m.Method == k.Changed() {
			return l.lists[k]
		}
	}
	return m.Method == "notifications/resources/updated" && slices.Contains(l.uris, m.P.URI)
}

func (ls *listeners) add(l *listener) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all = append(ls.all, l)
}

func (ls *listeners) remove(l *listener) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all = slices.DeleteFunc(ls.all, func(other *listener) bool { return other == l })
}

func (ls *listeners) each() []*listener {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return slices.Clone(ls.all)
}

// uris are the resources whose updates somebody wants.
func (ls *listeners) uris() []string {
	var all []string
	for _, l := range ls.each() {
		all = append(all, l.uris...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Send implements wire.Stream.
func (ls *listeners) Send(raw []byte) bool {
	m := wire.Made(raw)
	if m == nil || m.Kind != wire.Notification {
		return false // nobody is asked on these streams
	}
	for _, l := range ls.each() {
		if l.wants(m) {
			<-l.begun
			l.c.out.Send(bridge.Tagged(m, l.c.id()))
		}
	}
	return true
}

// Answer implements wire.Stream: nobody asks on these streams.
func (ls *listeners) Answer([]byte) {}

// Listening implements wire.Stream.
func (ls *listeners) Listening() bool { return true }

// subscribe has the upstream tell of updates of the resources that the listeners
// want, and of no others. A connection that is coming up may have been brought to
// where the last one was before; it is told when it is there.
func (s *session) subscribe() {
	if changed := s.rewanted(); len(changed) > 0 {
		s.link.With(func(conn *bridge.Upstream) { s.tellOf(conn, changed) })
	}
}

// rewanted makes what the listeners want the session's subscriptions, and returns
// the resources that were added or are gone.
func (s *session) rewanted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var changed []string
	uris, before := s.listeners.uris(), s.subscriptions
	s.subscriptions = make(map[string]struct{}, len(uris))
	for _, uri := range uris {
		s.subscriptions[uri] = struct{}{}
		if _, there := before[uri]; !there {
			changed = append(changed, uri)
		}
	}
	for uri := range before {
		if _, there := s.subscriptions[uri]; !there {
			changed = append(changed, uri)
		}
	}
	return changed
}

// tellOf tells the upstream whether resources are subscribed to, as it is now:
// whichever of two changes is told last tells of both.
func (s *session) tellOf(conn *bridge.Upstream, uris []string) {
	s.link.Subscribing.Lock()
	defer s.link.Subscribing.Unlock()
	for _, uri := range uris {
		switch {
		case s.subscribed(uri):
			s.resubscribe(conn, uri)
		case !s.wanted(uri):
			s.part(conn, uri)
		}
	}
}

// allSubscribed are the subscriptions over the session's connection, but for those
// whose call has not been sent yet.
func (s *session) allSubscribed() []string {
	members := []*session{s}
	if s.p.shared != nil {
		members = s.p.shared.members()
	}
	var uris []string
	for _, member := range members {
		member.mu.Lock()
		uris = append(uris, member.subscribedLocked()...)
		member.mu.Unlock()
	}
	slices.Sort(uris)
	return slices.Compact(uris)
}

func (s *session) resubscribe(conn *bridge.Upstream, uri string) {
	if m := ofResource("resources/subscribe", uri); m != nil {
		redo(conn, m)
	}
}

// part ends a subscription upstream. The goroutine ends with the connection at the
// latest.
func (s *session) part(conn *bridge.Upstream, uri string) {
	m := ofResource("resources/unsubscribe", uri)
	if m == nil {
		return
	}
	call := conn.Start(m, nil)
	go func() {
		_, _ = call.Wait(context.Background())
		s.rejoin(uri)
	}()
}

// rejoin has the upstream tell of a resource again whose subscription was ended, if
// it is wanted by now: over HTTP one request overtakes another. One that has yet to be
// asked for comes later by itself.
func (s *session) rejoin(uri string) {
	s.link.With(func(conn *bridge.Upstream) {
		s.link.Subscribing.Lock()
		defer s.link.Subscribing.Unlock()
		if s.wanted(uri) && slices.Contains(s.allSubscribed(), uri) {
			s.resubscribe(conn, uri)
		}
	})
}

// ofResource is a request about a resource.
func ofResource(method, uri string) *wire.Message {
	params := append(wire.AppendString([]byte(`{"uri":`), uri), '}')
	return wire.Made(wire.RequestMessage(0, method, params))
}
