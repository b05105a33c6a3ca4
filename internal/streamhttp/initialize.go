package streamhttp

import (
	"net/http"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// initialize serves a POST without a session: the one request that begins one.
func (s *Server) initialize(w http.ResponseWriter, r *http.Request, takes accepts, from PeerInfo) {
	raw, claim, ok := s.body(w, r, takes, from, nil)
	if !ok {
		return
	}
	defer claim.release()
	if wire.IsBatch(raw) {
		s.cfg.tell(ReasonNoSession, http.StatusBadRequest, r)
		refuse(w, http.StatusBadRequest, noSession)
		return
	}
	m := s.message(w, r, raw)
	if m == nil {
		return
	}
	if s.takesModern(m) {
		s.serveModern(w, r, takes, m, from)
		return
	}
	if m.Method != "initialize" || m.Kind != wire.Request {
		s.cfg.tell(ReasonNoSession, http.StatusBadRequest, r)
		refuse(w, http.StatusBadRequest, noSession)
		return
	}
	by := partyOf(from)
	if !s.table.reserve(by) {
		s.cfg.tell(ReasonCrowded, http.StatusServiceUnavailable, r)
		w.Header().Set("Retry-After", "60")
		refuse(w, http.StatusServiceUnavailable,
			"too many sessions: end some with DELETE, wait until idle ones end, or have the limit raised (--max-sessions; before a command --max-upstreams, or --share-upstream)")
		return
	}
	ses := newSession(s, by)
	p := &post{s: ses, w: w, ctx: r.Context(), head: r.Header, takes: takes, since: s.clock.now.Load(), whole: true}
	s.open(p, m, r, from)
}

// open begins the session in the room reserved for it, and gives the room up
// where initialize fails.
func (s *Server) open(p *post, m *wire.Message, r *http.Request, from PeerInfo) {
	ses := p.s
	from.Session, ses.run = ses.tag, from.Run
	if s.cfg.Key != nil {
		ses.key = s.cfg.Key(from)
	}
	upper, err := s.cfg.Open(ownStream{ses}, from)
	if err != nil {
		s.table.release(ses.party)
		s.cfg.tell(ReasonNoRun, http.StatusBadRequest, r)
		refuse(p.w, http.StatusBadRequest, err.Error())
		return
	}
	ses.upper = upper
	p.wait(ses.upper.Handle(m, p))
	if ses.version = ses.upper.Version(); ses.version == "" {
		s.drop(ses)
	} else {
		s.table.add(ses)
		p.w.Header()[headerSession] = []string{ses.id}
		s.cfg.Log.Debug("session begun", "session", ses.tag, "revision", ses.version)
	}
	p.end(true, m.Bytes(m.ID))
	ses.leave()
	if s.requests.closed() {
		s.end(ses, serverClosed)
	}
}

// drop gives up a session that nobody knows of yet.
func (s *Server) drop(ses *session) {
	s.table.release(ses.party)
	if ses.end() {
		ses.upper.Close()
	}
}
