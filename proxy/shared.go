package proxy

import (
	"maps"
	"slices"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
)

// shared is the one upstream connection of all sessions. The proxy is its
// client; what arrives on the stream of a call reaches that call's client, and
// nothing else that belongs to somebody does.
type shared struct {
	p    *Proxy
	link *link.Link

	mu       sync.Mutex // guards what follows
	sessions map[*session]struct{}
}

func newShared(p *Proxy) *shared {
	sh := &shared{p: p, sessions: make(map[*session]struct{})}
	sh.link = link.New(&p.links, sh, sh.replay)
	sh.link.GreetBySelf()
	return sh
}

// opening introduces the proxy in either way. With a session is preferred: in it
// sampling and the like need no retries.
func (sh *shared) opening() bridge.Opening {
	may := sh.p.beginning().UpstreamMay()
	if !sh.p.cfg.Streams {
		may = policy.UpstreamMay{}
	}
	capabilities := wire.Pick(bridge.Askable(hides(may)), func(string, []byte) []byte { return []byte("{}") })
	return bridge.Client{}.Opening(bridge.Introduction{Capabilities: capabilities, Info: sh.p.clientInfo()})
}

// clientInfo is what the proxy calls itself towards upstreams.
func (p *Proxy) clientInfo() []byte {
	return append(wire.AppendString([]byte(`{"name":"fsm-proxy","version":`), p.cfg.Version), '}')
}

// welcome makes a session one of those that share the connection, dismiss ends
// that.
func (sh *shared) welcome(s *session) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.sessions[s] = struct{}{}
}

func (sh *shared) dismiss(s *session) {
	s.mu.Lock()
	uris := slices.Collect(maps.Keys(s.subscriptions))
	s.subscriptions = nil
	s.mu.Unlock()
	sh.mu.Lock()
	delete(sh.sessions, s)
	sh.mu.Unlock()
	if len(uris) > 0 {
		sh.link.With(func(conn *bridge.Upstream) { s.tellOf(conn, uris) })
	}
}

func (sh *shared) members() []*session {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	all := make([]*session, 0, len(sh.sessions))
	for s := range sh.sessions {
		all = append(all, s)
	}
	return all
}

// moreVerbose reports whether another session wants a log level at least as
// verbose as this one.
func (sh *shared) moreVerbose(than *session, level string) bool {
	for _, s := range sh.members() {
		s.mu.Lock()
		set := s.level
		s.mu.Unlock()
		if s != than && set != nil && slices.Index(levels, set.P.Level) <= slices.Index(levels, level) {
			return true
		}
	}
	return false
}

// anySubscribed reports whether some session still wants a resource's updates.
func (sh *shared) anySubscribed(uri string) bool {
	for _, s := range sh.members() {
		if s.subscribed(uri) {
			return true
		}
	}
	return false
}

// Receive takes what the shared upstream sends besides answers.
func (sh *shared) Receive(m *wire.Message, tag any) {
	sh.link.With(func(conn *bridge.Upstream) { sh.receive(conn, m, tag) })
}

func (sh *shared) receive(conn *bridge.Upstream, m *wire.Message, tag any) {
	c, _ := tag.(*call)
	switch {
	case m.Kind == wire.Request && c != nil:
		c.s.asked(conn, m, c)
	case m.Kind == wire.Request:
		_ = conn.Notify(wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeMethodNotFound, "Method not found: "+wire.Clip(m.Method), nil))
	case concernsAll(m.Method):
		sh.notified(conn, m, c)
	case c != nil:
		c.s.notified(conn, m, c)
	default:
		sh.p.cfg.Log.Debug("dropped a message of the shared upstream that belongs to no call", "method", wire.Clip(m.Method))
	}
}

// concernsAll reports whether a notification is for every session, on whose
// call's stream it may arrive: each goes by what it was shown, has subscribed to
// or has open.
func concernsAll(method string) bool {
	switch method {
	case "notifications/tools/list_changed", "notifications/resources/list_changed", "notifications/prompts/list_changed",
		"notifications/resources/updated", "notifications/cancelled":
		return true
	}
	return false
}

// notified gives every session a notification; the one whose call it came with,
// if any, on that call's stream.
func (sh *shared) notified(conn *bridge.Upstream, m *wire.Message, c *call) {
	for _, s := range sh.members() {
		if c != nil && c.s == s {
			s.notified(conn, m, c)
		} else {
			s.notified(conn, m, nil)
		}
	}
}

// replay brings a new connection to where the last one was.
func (sh *shared) replay(conn *bridge.Upstream, again bool) {
	go sh.watch(conn)
	if !again {
		return
	}
	sh.p.reconnected()
	for _, s := range sh.members() {
		s.restore(conn)
	}
}

// watch ends what a connection has open at any client when it is lost. The
// goroutine ends with the connection.
func (sh *shared) watch(conn *bridge.Upstream) {
	sh.p.lifetime(conn)
	for _, s := range sh.members() {
		s.forgetAsks(conn)
	}
}
