package proxy

import (
	"bytes"
	"context"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
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
	if conn := c.s.link.Live(); conn != nil {
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
		over := c.seen.Waiting()
		v, err = c.s.fetch(conn, k)
		over()
	}
	if err != nil {
		c.seen.Failed(observe.Fault{Code: policy.UpstreamUnavailable})
		c.fail(wire.CodeInternal, "listing "+k.String()+" of the upstream: "+c.s.p.drain.endedBy(err).Error())
		return
	}
	c.show(v, k)
}

// show answers with a view as it looks to the client, and remembers what it was shown.
func (c *call) show(v catalogue.View, k wire.ListKind) wire.Pending {
	s := c.s
	s.shows(k, v)
	l := s.look(s.run.Where(), s.static())
	l.Own = s.tools.List(l.Snapshot, l.Static, c.who().Principal)
	return c.result(s.rendered(v, l))
}

// shown is what a session's client knows of a list, and what is done to keep it up to date.
type shown struct {
	view      catalogue.View // that it was shown last; zero: none, or not by the proxy
	asked     bool           // for the list, once or more often
	told      int            // how often it was told of a change since it asked
	comparing bool           // with what the upstream offers now
	again     bool           // once that is done
}

// shows notes what the client is shown that asks for a list; the zero View where that is not
// known.
func (s *session) shows(k wire.ListKind, v catalogue.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.shown[k]
	l.view, l.asked, l.told = v, true, 0
}

func (s *session) shownLast(k wire.ListKind) catalogue.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown[k].view
}

// templates refuses what a finite automaton cannot bind.
func (c *call) templates() wire.Pending {
	if c.s.policyNow().Templates() == policy.TemplatesEmpty {
		return c.result(c.s.lasting([]byte(`{"resourceTemplates":[]}`)))
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

// rendered is the result of a list request, as the session's clients want it.
func (s *session) rendered(v catalogue.View, l catalogue.Look) []byte {
	return s.p.lists.List(v, l, s.finish())
}

// finish makes a list of the proxy's one that the session's clients want; nil: it is.
func (s *session) finish() func([]byte) []byte {
	if !s.ofRun {
		return nil
	}
	return s.lasting
}

// lasting is a result of the proxy's own that may be kept, as the session's clients
// read it.
func (s *session) lasting(result []byte) []byte {
	if !s.ofRun {
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

// fetchAll gets what a refusal or an annotation names. It waits no longer than a
// refusal may.
func (c *call) fetchAll(conn *bridge.Upstream) {
	defer c.seen.Waiting()()
	ctx, stop := context.WithTimeout(c.s.p.drain.lasting, c.s.p.cfg.CancelGrace)
	defer stop()
	h := c.s.hello.Load()
	for _, k := range gatedLists {
		if h.Lists[k] {
			if _, err := c.s.fetchUntil(ctx, conn, k); err != nil {
				c.s.log.Warn("listing what could be named", "list", k.String(), "error", err)
			}
		}
	}
}

// lastKnown returns the view of a kind without waiting: the one at hand, or else
// the one that the client was shown last. The list is nil where there is neither.
func (s *session) lastKnown(k wire.ListKind) catalogue.View {
	if conn := s.link.Live(); conn != nil {
		if v, ok := s.cached(conn, k); ok {
			return v
		}
	}
	return s.shownLast(k)
}

// names returns what is listed and allowed in a snapshot, in the upstream's order;
// by the policy alone where no list is known.
func (s *session) names(at run.Snapshot, k policy.Kind) []string {
	return s.look(at, false).Names(k, s.lastKnown(listKind(k)))
}

// hasOutputSchema reports whether a tool has one in what the upstream lists now,
// or in what the client was shown last: that is what it goes by.
func (s *session) hasOutputSchema(tool string) bool {
	const key = "outputSchema"
	if handle.Own(tool) || s.shownLast(wire.Tools).List.Member(tool, key) != nil {
		return true
	}
	conn := s.link.Live()
	return conn != nil && conn.Cached(wire.Tools).Member(tool, key) != nil
}

// bit is a list's bit in a Notifier's set.
func bit(k wire.ListKind) uint8 { return 1 << k }

// notifyChanged tells the client which lists a call changed: on the stream of
// the call itself, before its answer.
func (c *call) notifyChanged(moved ...run.Shift) {
	s := c.s
	bits := s.changed.Take() | s.differing(moved...)
	s.changed.Mark(s.sendChanged(c.aside(), bits))
	s.run.Tell(s, moved...)
}

// aside is where a call's client is told of what is no part of the call: on the
// call's own stream, but of a stateless one on those that listen.
func (c *call) aside() wire.Stream {
	if c.client.Stateless() {
		return c.s.own
	}
	return c.out
}

// differing returns the lists of which other bytes are shown since shifts.
func (s *session) differing(moved ...run.Shift) (bits uint8) {
	for _, m := range moved {
		if m.From != m.To {
			static := s.static()
			bits |= s.differ(s.look(m.From, static), s.look(m.To, static))
		}
	}
	return bits
}

// differ are the lists that look otherwise than before, going by what is at hand, or else
// by what the client was shown last.
func (s *session) differ(from, to catalogue.Look) (bits uint8) {
	h := s.hello.Load()
	if h == nil {
		return 0
	}
	for _, k := range gatedLists {
		if h.Lists[k] && s.p.lists.Differ(k, s.lastKnown, from, to, s.finish()) {
			bits |= bit(k)
		}
	}
	return bits
}

// tellOwn tells the client of what changed with a shift, before what is sent to it
// next.
func (s *session) tellOwn(moved ...run.Shift) {
	bits := s.changed.Take() | s.differing(moved...)
	if s.own.Listening() {
		bits = s.sendChanged(s.own, bits)
	}
	s.changed.Mark(bits)
}

// sendOwn sends changed lists on the session's own stream. It reports false
// where none went out.
func (s *session) sendOwn(bits uint8) bool {
	if !s.own.Listening() {
		return false
	}
	rest := s.sendChanged(s.own, bits)
	if rest != bits {
		s.changed.Mark(rest)
	}
	return rest != bits
}

// sendChanged tells the client of changed lists, and returns those that did not
// go out: none is told of twice.
func (s *session) sendChanged(out wire.Stream, bits uint8) (rest uint8) {
	for _, k := range gatedLists {
		switch {
		case bits&bit(k) == 0:
		case out.Send(changedMessages[k]):
			s.told(k)
		default:
			rest |= bit(k)
		}
	}
	return rest
}

var changedMessages = [...][]byte{
	wire.Tools:     wire.NotificationMessage(wire.Tools.Changed(), nil),
	wire.Resources: wire.NotificationMessage(wire.Resources.Changed(), nil),
	wire.Prompts:   wire.NotificationMessage(wire.Prompts.Changed(), nil),
}

// patience is how many times a client is told of a change, without listing in
// between, until the log gives advice. Of a list that it never asked for it need not.
const patience = 3

func (s *session) told(k wire.ListKind) {
	s.mu.Lock()
	l := &s.shown[k]
	l.told++
	warn := l.asked && l.told >= patience && !s.advised
	s.advised = s.advised || warn
	s.mu.Unlock()
	if warn {
		h := s.hello.Load()
		s.log.Warn("the client does not list again when it is told that a list changed; try --surface static",
			s.about("client", wire.Clip(h.client), "list", k.String())...)
	}
}

// upstreamChanged compares what the client was shown with what the upstream
// offers now, on a goroutine that the Proxy waits for.
func (s *session) upstreamChanged(conn *bridge.Upstream, k wire.ListKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.shown[k]
	if s.closed || l.comparing {
		l.again = true
		return
	}
	l.comparing = true
	s.p.ending.Add(1)
	go s.refresh(conn, k)
}

func (s *session) refresh(conn *bridge.Upstream, k wire.ListKind) {
	defer s.p.ending.Done()
	for more := true; more; {
		s.compare(conn, k)
		s.mu.Lock()
		l := &s.shown[k]
		more = l.again && !s.closed
		l.again, l.comparing = false, more
		s.mu.Unlock()
	}
}

// compare marks a list whose shown bytes differ from those shown last. To a
// client that has not listed yet the change goes on as it came.
func (s *session) compare(conn *bridge.Upstream, k wire.ListKind) {
	last := s.shownLast(k)
	v, err := s.fetch(conn, k)
	if err != nil {
		s.log.Debug("listing again after a change upstream", "list", k.String(), "error", err)
	}
	if s.run.Shadow() { // what the upstream said of it has gone on as it came
		return
	}
	l := s.look(s.run.Where(), s.static())
	if err != nil || last.List == nil || !bytes.Equal(s.rendered(last, l), s.rendered(v, l)) {
		s.changed.Mark(bit(k))
	}
}
