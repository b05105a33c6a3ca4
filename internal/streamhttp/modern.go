package streamhttp

import (
	"net/http"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// The modern era (2026-07-28): every POST stands alone.

// modern reports whether a request's header is of the modern era: it names a
// revision that is none of the legacy one, or nothing else is spoken here.
func (s *Server) modern(h http.Header) bool {
	if s.cfg.Modern == nil {
		return false
	}
	for _, version := range h[headerVersion] {
		if !wire.IsLegacyRevision(version) {
			return true
		}
	}
	return s.cfg.Open == nil
}

// takesModern reports whether a message is one of the modern era whatever its
// header says.
func (s *Server) takesModern(m *wire.Message) bool {
	return s.cfg.Modern != nil && m.Era() == wire.Modern
}

// postModern serves a POST whose header is of the modern era.
func (s *Server) postModern(w http.ResponseWriter, r *http.Request, takes accepts, from PeerInfo) {
	raw, claim, ok := s.body(w, r, takes, from, nil)
	if !ok {
		return
	}
	defer claim.release()
	if wire.IsBatch(raw) {
		s.unread(w, r, &wire.Error{Code: wire.CodeInvalidRequest, Message: "revision " + wire.ModernRevision + " has no batches: send the messages one by one"})
		return
	}
	if m := s.message(w, r, raw); m != nil {
		s.serveModern(w, r, takes, m, from)
	}
}

// serveModern serves a message of the modern era.
func (s *Server) serveModern(w http.ResponseWriter, r *http.Request, takes accepts, m *wire.Message, from PeerInfo) {
	if fault := s.modernFault(r.Header, m); fault != nil {
		s.cfg.tell(reasonOf(fault), faultStatus(fault), r)
		answerFault(w, m, fault)
		return
	}
	if m.Kind == wire.Notification {
		s.notify(w, m, from)
		return
	}
	x := &solo{s: s, w: w, ctx: r.Context(), head: r.Header, party: partyOf(from), takes: takes, since: s.clock.now.Load()}
	if x.listens = m.Method == "subscriptions/listen"; x.listens && !takes.sse {
		s.cfg.tell(ReasonMedia, http.StatusNotAcceptable, r)
		refuse(w, http.StatusNotAcceptable, "subscriptions/listen is answered by text/event-stream: accept it")
		return
	}
	if !s.solos.enter(x) {
		s.cfg.tell(ReasonCrowded, http.StatusServiceUnavailable, r)
		decline(w, wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeInternal, "too many requests are under way: wait for some to be answered", nil))
		return
	}
	defer s.solos.leave(x)
	x.serve(m, from)
}

// notify hands on a notification. Requests are cancelled by closing their response,
// so nobody's is by a notification that names its id.
func (s *Server) notify(w http.ResponseWriter, m *wire.Message, from PeerInfo) {
	if m.Method != "notifications/cancelled" {
		s.cfg.Modern(m, nowhere{}, from)
	}
	w.WriteHeader(http.StatusAccepted)
}

// nowhere is the stream of a notification: nothing answers it.
type nowhere struct{}

func (nowhere) Send([]byte) bool { return false }
func (nowhere) Answer([]byte)    {}
func (nowhere) Listening() bool  { return false }
