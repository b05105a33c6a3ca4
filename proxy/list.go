package proxy

import (
	"context"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// list answers a list request from the cached bytes.
func (c *call) list(k wire.ListKind) wire.Pending {
	h := c.s.hello.Load()
	if !h.Lists[k] && k == wire.Tools && c.s.p.handles != nil && c.client.Stateless() {
		return c.show(catalogue.NoTools, k)
	}
	if !h.Lists[k] {
		return c.fail(wire.CodeMethodNotFound, "the upstream server offers no "+k.String())
	}
	if c.m.P.Cursor != "" {
		return c.fail(wire.CodeInvalidParams, "unknown cursor: the whole list comes in one page")
	}
	c.s.listed(k)
	if conn := c.s.link.live(); conn != nil {
		if v, ok := c.s.cached(conn, k); ok {
			return c.show(v, k)
		}
	}
	return c.later(func() { c.listFetched(k) })
}

func (c *call) listFetched(k wire.ListKind) {
	conn, err := c.connect()
	var v catalogue.View
	if err == nil {
		v, err = c.view(conn, k)
	}
	if err != nil {
		c.blame(Fault{Code: policy.UpstreamUnavailable})
		c.fail(wire.CodeInternal, "listing "+k.String()+" of the upstream: "+c.s.p.endedBy(err).Error())
		return
	}
	c.show(v, k)
}

// view is fetch for the call, which waits for it.
func (c *call) view(conn *bridge.Upstream, k wire.ListKind) (catalogue.View, error) {
	defer c.waiting()()
	return c.s.fetch(conn, k)
}

// show answers with a view as it looks to the client, and remembers what it was given.
func (c *call) show(v catalogue.View, k wire.ListKind) wire.Pending {
	s := c.s
	s.mu.Lock()
	s.refreshes[k].shown = v
	s.mu.Unlock()
	l := s.look(s.run.where(), s.static())
	l.Own = s.tools.List(l.Snapshot, l.Static, c.who().Principal)
	return c.result(s.rendered(v, l))
}

// templates refuses what a finite automaton cannot bind.
func (c *call) templates() wire.Pending {
	if c.s.policyNow().Templates() == policy.TemplatesEmpty {
		return c.result(c.s.forEra([]byte(`{"resourceTemplates":[]}`)))
	}
	if c.opaquely() {
		return c.fail(wire.CodeMethodNotFound, "resource templates are not offered here. Use resources/list")
	}
	return c.fail(wire.CodeMethodNotFound, "resource templates are not offered: a policy binds concrete URIs. "+
		"Use resources/list; to answer this request with an empty list, set 'templates: empty' in the policy")
}

// look is how lists look in a snapshot of the session's run, whoever asks.
func (s *session) look(at run.Snapshot, static bool) catalogue.Look {
	return catalogue.Look{Snapshot: at, Pins: s.p.pins.Load(), Own: s.tools.List(at, static, wire.Principal{}), Static: static}
}

// rendered is the result of a list request, in the session's era.
func (s *session) rendered(v catalogue.View, l catalogue.Look) []byte {
	return s.p.lists.List(v, l, s.finish())
}

// finish makes a list of the proxy's one of the session's era; nil: it is.
func (s *session) finish() func([]byte) []byte {
	if s.era == wire.Legacy {
		return nil
	}
	return s.forEra
}

// forEra is a result of the proxy's own that may be kept, as a client of the
// session's era reads it.
func (s *session) forEra(result []byte) []byte {
	if s.era == wire.Legacy {
		return result
	}
	return bridge.Stateless.Result(result, s.serverInfo(), s.freshList())
}

func (s *session) static() bool {
	h := s.hello.Load()
	return h != nil && h.static
}

// cached returns the view of a kind if it is at hand.
func (s *session) cached(conn *bridge.Upstream, k wire.ListKind) (v catalogue.View, ok bool) {
	if v.List = conn.Cached(k); v.List == nil {
		return v, false
	}
	if v.LacksTemplates(s.policyNow()) {
		v.Templates = conn.Cached(wire.Templates)
		return v, v.Templates != nil
	}
	return v, true
}

// fetch returns the view of a kind, from the upstream if need be.
func (s *session) fetch(conn *bridge.Upstream, k wire.ListKind) (v catalogue.View, err error) {
	ctx, stop := s.p.drain.listContext(s.p.cfg.CallTimeout)
	defer stop()
	return s.fetchUntil(ctx, conn, k)
}

func (s *session) fetchUntil(ctx context.Context, conn *bridge.Upstream, k wire.ListKind) (v catalogue.View, err error) {
	if v.List, err = conn.List(ctx, k); err != nil {
		return v, err
	}
	if n := v.List.Unnamed; n > 0 {
		s.log.Warn("items without a single name are hidden", "list", k.String(), "count", n)
	}
	if v.LacksTemplates(s.policyNow()) {
		v.Templates, err = conn.List(ctx, wire.Templates)
	}
	if err == nil {
		s.p.notice(v)
	}
	return v, err
}

var gatedLists = [...]wire.ListKind{wire.Tools, wire.Resources, wire.Prompts}

// atHand reports whether all that a refusal names is cached.
func (s *session) atHand(conn *bridge.Upstream) bool {
	h := s.hello.Load()
	for _, k := range gatedLists {
		if !h.Lists[k] {
			continue
		}
		if _, ok := s.cached(conn, k); !ok {
			return false
		}
	}
	return true
}

// fetchAll is the session's for the call, which waits for it.
func (c *call) fetchAll(conn *bridge.Upstream) {
	defer c.waiting()()
	c.s.fetchAll(conn)
}

// fetchAll gets what a refusal or an annotation names. It waits no longer than a
// refusal may.
func (s *session) fetchAll(conn *bridge.Upstream) {
	ctx, stop := context.WithTimeout(s.p.drain.lasting, s.p.cfg.CancelGrace)
	defer stop()
	h := s.hello.Load()
	for _, k := range gatedLists {
		if h.Lists[k] {
			if _, err := s.fetchUntil(ctx, conn, k); err != nil {
				s.log.Warn("listing what could be named", "list", k.String(), "error", err)
			}
		}
	}
}

// lastKnown returns the view of a kind without waiting: the one at hand, or else
// the one that the client was given last. The list is nil where there is neither.
func (s *session) lastKnown(k wire.ListKind) catalogue.View {
	if conn := s.link.live(); conn != nil {
		if v, ok := s.cached(conn, k); ok {
			return v
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refreshes[k].shown
}

// names returns what is listed and allowed in a snapshot, in the upstream's order;
// by the policy alone where no list is known.
func (s *session) names(at run.Snapshot, k policy.Kind) []string {
	return s.look(at, false).Names(k, s.lastKnown(listKind(k)))
}

// differs reports whether a list looks otherwise in one snapshot than in another, going
// by the one that is at hand, or else by the one that the client was given last.
func (s *session) differs(from, to run.Snapshot, k wire.ListKind) bool {
	static := s.static()
	return s.looksOther(k, s.look(from, static), s.look(to, static))
}

func (s *session) looksOther(k wire.ListKind, from, to catalogue.Look) bool {
	return s.p.lists.Differ(k, s.lastKnown, from, to, s.finish())
}

// hasOutputSchema reports whether a tool has one in what the upstream lists now,
// or in what the client was given last: that is what it goes by.
func (s *session) hasOutputSchema(tool string) bool {
	const key = "outputSchema"
	s.mu.Lock()
	shown := s.refreshes[wire.Tools].shown.List
	s.mu.Unlock()
	if handle.Own(tool) || shown.Member(tool, key) != nil {
		return true
	}
	conn := s.link.live()
	return conn != nil && conn.Cached(wire.Tools).Member(tool, key) != nil
}
