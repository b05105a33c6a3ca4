package proxy

import (
	"strconv"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// ask is a request of the upstream that is open at the client.
type ask struct {
	conn   *bridge.Upstream
	id     []byte // the upstream's own id
	method string
	call   *call       // for which it asks; nil: none is known
	token  string      // the key of its progress token, empty: none
	mine   []byte      // the id that the client sees
	lapses *time.Timer // when the client has had its time
}

// send gives the client a message: on the stream of the call it belongs to, or
// else on the session's own.
func (s *session) send(raw []byte, c *call) bool {
	return c != nil && c.stream(false).Send(raw) || s.own.Send(raw)
}

// sendAsk is send for a request of the upstream, or what is said of one.
func (s *session) sendAsk(raw []byte, c *call) bool {
	return c != nil && c.stream(true).Send(raw) || s.own.Send(raw)
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
		if !c.deadline.Started().IsZero() && c.gated && (oldest == nil || c.deadline.Started().Before(oldest.deadline.Started())) {
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
	if s.ofRun && (c == nil || !c.steps() || c.isAnswered() || s.run.Nobodys && !s.p.cfg.Streams || !bridge.Declares(c.m, m.Method)) ||
		!s.mayAsk(m.Method) && !s.overlooksAsk(m.Method) {
		s.reject(conn, m.Bytes(m.ID), wire.CodeMethodNotFound, "Method not found: "+wire.Clip(m.Method))
		return
	}
	a := &ask{conn: conn, id: m.Bytes(m.ID), method: m.Method, call: c, token: wire.Key(m.Bytes(m.P.MetaToken))}
	if !s.enterAsk(a) {
		s.reject(conn, a.id, wire.CodeInternal, "the client's session has ended, or too many requests are open")
		return
	}
	raw := wire.Splice(m.Raw, wire.Edit{At: m.ID, With: a.mine})
	if !s.sendAsk(raw, c) {
		s.takeAsk(string(a.mine))
		s.reject(conn, a.id, wire.CodeInternal, "the client takes no requests now")
	}
}

func (s *session) reject(conn *bridge.Upstream, id []byte, code int, text string) {
	if err := conn.Notify(wire.ErrorAnswer(id, code, text, nil)); err != nil {
		s.log.Debug("answering a request of the upstream", "error", err)
	}
}

func (s *session) mayAsk(method string) bool {
	h := s.shown.Hello.Load()
	if h == nil {
		return false
	}
	p := s.policyNow()
	name := bridge.AskedBy(method)
	if name == "" {
		return p.Passthrough(method)
	}
	return h.May.Permits(name) && p.UpstreamMay().Permits(name)
}

// overlooksAsk reports whether the upstream may ask a client what the policy
// would refuse.
func (s *session) overlooksAsk(method string) bool {
	if s.shown.Hello.Load() == nil || !s.run.Shadow() {
		return false
	}
	s.log.Info(wouldBeRefused, s.about("code", policy.NotAvailable.String(), "method", wire.Clip(method), "why", notCarried)...)
	s.p.cfg.Telemetry.ShadowRefused(policy.NotAvailable)
	return true
}

// enterAsk opens an ask under a new id, for as long as a client may take. While it is open
// the call's clock stands still.
func (s *session) enterAsk(a *ask) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.asks) >= s.p.cfg.MaxInFlight {
		return false
	}
	s.lastAsk++
	a.mine = strconv.AppendInt(nil, s.lastAsk, 10)
	if s.asks == nil {
		s.asks = make(map[string]*ask)
	}
	id := string(a.mine)
	s.asks[id] = a
	a.lapses = time.AfterFunc(s.p.cfg.AskTimeout, func() { s.lapse(id) })
	if a.call != nil {
		a.call.asks.Add(1)
		a.call.deadline.Suspend()
	}
	return true
}

// takeAsk closes an ask, nil if there is none under the id.
func (s *session) takeAsk(id string) *ask {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asks[id]
	if a == nil {
		return nil
	}
	delete(s.asks, id)
	a.lapses.Stop()
	if a.call != nil {
		a.call.asks.Add(-1)
		a.call.deadline.Resume()
	}
	return a
}

// lapse gives up an ask that the client has not answered in time: the upstream gets an
// error for it, and the time of its call runs on.
func (s *session) lapse(id string) {
	a := s.takeAsk(id)
	if a == nil {
		return
	}
	s.log.Warn("a client did not answer a request of the upstream in time (--ask-timeout)", s.about("method", wire.Clip(a.method))...)
	s.withdrawFrom(a, unanswered)
	s.reject(a.conn, a.id, wire.CodeInternal, unanswered)
}

const unanswered = "the client did not answer in time"

// withdrawFrom tells a client that it need not answer an ask any more.
func (s *session) withdrawFrom(a *ask, reason string) {
	params := append(append([]byte(`{"requestId":`), a.mine...), `,"reason":`...)
	s.sendAsk(wire.NotificationMessage("notifications/cancelled", append(wire.AppendString(params, reason), '}')), a.call)
}

// answered carries the client's answer to the upstream that asked. An answer to
// nothing that is open goes nowhere.
func (s *session) answered(m *wire.Message) {
	a := s.takeAsk(m.IDKey())
	if a == nil {
		s.log.Debug("dropped an answer to no open request")
		return
	}
	if err := a.conn.Notify(wire.Splice(m.Raw, wire.Edit{At: m.ID, With: a.id})); err != nil {
		s.log.Debug("answering a request of the upstream", "error", err)
	}
}

// withdraw carries the upstream's cancellation of its own request.
func (s *session) withdraw(conn *bridge.Upstream, m *wire.Message) {
	key := wire.Key(m.Bytes(m.P.RequestID))
	for id, a := range s.openAsks() {
		if a.conn != conn || wire.Key(a.id) != key || s.takeAsk(id) == nil {
			continue
		}
		s.sendAsk(wire.Splice(m.Raw, wire.Edit{At: m.P.RequestID, With: a.mine}), a.call)
	}
}

func (s *session) openAsks() map[string]*ask {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*ask, len(s.asks))
	for id, a := range s.asks {
		all[id] = a
	}
	return all
}

// dropAsks answers what is open at the client in the client's place: its session
// has ended.
func (s *session) dropAsks() {
	for id, a := range s.openAsks() {
		if s.takeAsk(id) != nil {
			s.reject(a.conn, a.id, wire.CodeInternal, "the client's session has ended")
		}
	}
}

// forgetAsks takes back from the client what a connection has asked that is lost.
func (s *session) forgetAsks(conn *bridge.Upstream) {
	for id, a := range s.openAsks() {
		if a.conn == conn && s.takeAsk(id) != nil {
			s.withdrawFrom(a, "the upstream server has gone")
		}
	}
}

// progressOfAsk carries the client's progress on a request of the upstream.
func (s *session) progressOfAsk(m *wire.Message) {
	token := wire.Key(m.Bytes(m.P.ProgressToken))
	for _, a := range s.openAsks() {
		if token != "" && a.token == token {
			_ = a.conn.Notify(m.Raw)
			return
		}
	}
}

// bound reports whether a name is bound now, by its exact name.
func (s *session) bound(k policy.Kind, name string) bool {
	at := s.run.Where()
	listed := true
	if conn := s.link.Live(); conn != nil {
		if l := conn.Cached(surface.ListOf(k)); l != nil {
			listed = l.Has(name)
		}
	}
	return at.Decide(k, name, listed, nil).Bound
}
