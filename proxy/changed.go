package proxy

import (
	"bytes"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// bit is a list's bit in a Notifier's set.
func bit(k wire.ListKind) uint8 { return 1 << k }

// notifyChanged tells the client which lists a call changed: on the stream of
// the call itself, before its answer.
func (c *call) notifyChanged(moved run.Shift) {
	s := c.s
	bits := s.changed.Take() | s.differing(moved)
	s.changed.Mark(s.sendChanged(c.aside(), bits))
	s.run.tell(moved, s)
}

// aside is where a call's client is told of what is no part of the call: on the
// call's own stream, but in the modern era on those that listen.
func (c *call) aside() wire.Stream {
	if c.client.Stateless() {
		return c.s.own
	}
	return c.out
}

// differing are the lists of which other bytes are shown since a shift.
func (s *session) differing(m run.Shift) (bits uint8) {
	h := s.hello.Load()
	if h == nil || m.From == m.To {
		return 0
	}
	for _, k := range gatedLists {
		if h.Lists[k] && s.differs(m.From, m.To, k) {
			bits |= bit(k)
		}
	}
	return bits
}

// tellOwn tells the client of what changed with a shift, before what is sent to it
// next.
func (s *session) tellOwn(moved run.Shift) {
	bits := s.changed.Take() | s.differing(moved)
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

// relist watches whether a client that was told of a change lists again. Of a
// list that it never asked for it need not.
type relist struct {
	listed  [3]bool // whether it ever listed
	pending [3]int  // how often it was told since it listed
	warned  bool
}

// patience is how many times a client is told of a change, without listing in
// between, until the log gives advice.
const patience = 3

func (s *session) told(k wire.ListKind) {
	s.mu.Lock()
	s.relist.pending[k]++
	warn := s.relist.listed[k] && s.relist.pending[k] >= patience && !s.relist.warned
	s.relist.warned = s.relist.warned || warn
	s.mu.Unlock()
	if warn {
		h := s.hello.Load()
		s.log.Warn("the client does not list again when it is told that a list changed; try --surface static",
			s.about("client", clip(h.client), "list", k.String())...)
	}
}

func (s *session) listed(k wire.ListKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.relist.listed[k], s.relist.pending[k] = true, 0
}

// refresh is what a session knows of the upstream's changes to one list.
type refresh struct {
	shown   catalogue.View // what the client was given last
	running bool
	again   bool
}

// upstreamChanged compares what the client was shown with what the upstream
// offers now, on a goroutine that the Proxy waits for.
func (s *session) upstreamChanged(conn *bridge.Upstream, k wire.ListKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.refreshes[k]
	if s.closed || r.running {
		r.again = true
		return
	}
	r.running = true
	s.p.ending.Add(1)
	go s.refresh(conn, k)
}

func (s *session) refresh(conn *bridge.Upstream, k wire.ListKind) {
	defer s.p.ending.Done()
	for more := true; more; {
		s.compare(conn, k)
		s.mu.Lock()
		r := &s.refreshes[k]
		more = r.again && !s.closed
		r.again, r.running = false, more
		s.mu.Unlock()
	}
}

// compare marks a list whose shown bytes differ from those given last. To a
// client that has not listed yet the change goes on as it came.
func (s *session) compare(conn *bridge.Upstream, k wire.ListKind) {
	s.mu.Lock()
	last := s.refreshes[k].shown
	s.mu.Unlock()
	v, err := s.fetch(conn, k)
	if err != nil {
		s.log.Debug("listing again after a change upstream", "list", k.String(), "error", err)
	}
	if s.run.shadow.Load() { // what the upstream said of it has gone on as it came
		return
	}
	l := s.look(s.run.where(), s.static())
	if err != nil || last.List == nil || !bytes.Equal(s.rendered(last, l), s.rendered(v, l)) {
		s.changed.Mark(bit(k))
	}
}
