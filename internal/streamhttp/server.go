package streamhttp

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
)

// Server is the server end of Streamable HTTP: an [http.Handler] for one path.
// Make it with [NewServer], serve it with an [httpserver.Server], which gives each
// write its deadline, end it with [Server.Close].
//
// An answer is JSON as long as nothing else belongs to its request and it does
// not take long (see [ServerConfig.Patience]); else the POST becomes an event
// stream, whose events the client can ask for again.
type Server struct {
	cfg   ServerConfig
	guard *guard
	clock clock
	table table

	solos solos

	requests underway
	stores   stores

	stop    chan struct{} // ends the sweeper
	stopped chan struct{}
}

// clock is the time in whole ticks, kept by the sweeper: most of what the
// server measures needs no better.
type clock struct{ now atomic.Int64 }

// tick is the clock's unit, and how often the sweeper comes round.
const tick = time.Second

func ticks(d time.Duration) int64 { return int64((d + tick - 1) / tick) }

// NewServer returns a server that accepts sessions. A goroutine of its own
// runs until [Server.Close].
func NewServer(cfg ServerConfig) *Server {
	cfg.fill()
	s := &Server{
		cfg:     cfg,
		guard:   newGuard(&cfg),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	s.requests.init()
	s.stores.init(cfg.StoreTotal)
	s.table.init(&s.cfg)
	s.solos.init(&s.cfg)
	go s.sweep()
	return s
}

// Sessions is how many sessions there are.
func (s *Server) Sessions() int { return s.table.len() }

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, ok := s.guard.pass(w, r)
	if !ok {
		return
	}
	// Who is not let in does not count: Close does not wait for who reads no refusal.
	if !s.requests.enter() {
		s.cfg.tell(ReasonEnding, http.StatusServiceUnavailable, r)
		w.Header()["Retry-After"] = []string{retryAfter}
		refuse(w, http.StatusServiceUnavailable, "shutting down")
		return
	}
	defer s.requests.leave()
	run, ok := s.run(r)
	if !ok {
		s.cfg.tell(ReasonPath, http.StatusNotFound, r)
		refuse(w, http.StatusNotFound, "nothing here: MCP is served at "+s.cfg.Path)
		return
	}
	from := PeerInfo{RemoteAddr: r.RemoteAddr, Header: r.Header, Principal: who, Run: run}
	switch r.Method {
	case http.MethodPost:
		s.post(w, r, from)
		return
	case http.MethodGet, http.MethodDelete:
		if !s.modern(r.Header) {
			s.ofSession(w, r, from)
			return
		}
	}
	s.methodNotAllowed(w, r)
}

// run is the run that the path of a request names, "" for none; ok is false where
// the path is none that is served.
func (s *Server) run(r *http.Request) (id string, ok bool) {
	path := r.URL.Path
	if path == s.cfg.Path {
		return "", true
	}
	if !s.cfg.Runs {
		return "", false
	}
	id, ok = strings.CutPrefix(path, s.cfg.Path+"/runs/")
	return id, ok && id != "" && len(id) <= maxRunID && !strings.Contains(id, "/")
}

// maxRunID is how long the id of a run in a path may be.
const maxRunID = 128

// ofSession serves what only a session has.
func (s *Server) ofSession(w http.ResponseWriter, r *http.Request, from PeerInfo) {
	if r.Method == http.MethodGet {
		s.get(w, r, from)
	} else {
		s.delete(w, r, from)
	}
}

func (s *Server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	s.cfg.tell(ReasonMethod, http.StatusMethodNotAllowed, r)
	if s.modern(r.Header) {
		w.Header()["Allow"] = valuePost
		refuse(w, http.StatusMethodNotAllowed, "use POST: there are no sessions in this revision")
		return
	}
	w.Header()["Allow"] = valueAllow
	refuse(w, http.StatusMethodNotAllowed, "use POST, GET or DELETE")
}

// session finds the session of a request and marks it busy; the caller must
// call its leave. Where there is none the request is answered; somebody else's is
// none, nor is another URL's.
func (s *Server) session(w http.ResponseWriter, r *http.Request, from PeerInfo) *session {
	ids := r.Header[headerSession]
	if len(ids) != 1 {
		s.cfg.tell(ReasonNoSession, http.StatusBadRequest, r)
		text := noSession
		if r.Method == http.MethodGet {
			text = noPage + "For a client, " + noSession
		}
		refuse(w, http.StatusBadRequest, text)
		return nil
	}
	ses := s.table.find(ids[0])
	if ses == nil || ses.party.who != from.Principal || ses.run != from.Run || !s.fits(ses, from) || !ses.enter() {
		s.cfg.tell(ReasonSession, http.StatusNotFound, r)
		refuse(w, http.StatusNotFound, "no such session, or it has ended: begin a new one with initialize")
		return nil
	}
	httpserver.Admit(w)
	return ses
}

// sessionOf is session for a request without a message, whose revision must be the session's.
func (s *Server) sessionOf(w http.ResponseWriter, r *http.Request, from PeerInfo) *session {
	ses := s.session(w, r, from)
	if ses == nil {
		return nil
	}
	if fault := versionFault(r.Header, ses.version); fault != "" {
		ses.leave()
		s.cfg.tell(ReasonHeader, http.StatusBadRequest, r)
		refuse(w, http.StatusBadRequest, fault)
		return nil
	}
	return ses
}

// fits reports whether a request brings what its session was begun with.
func (s *Server) fits(ses *session, from PeerInfo) bool {
	return s.cfg.Key == nil || ses.key == s.cfg.Key(from)
}

const noSession = "exactly one Mcp-Session-Id is needed: begin with initialize, " +
	"of protocol revision 2024-11-05 to 2025-11-25, and send the id that its answer carries"

func (s *Server) delete(w http.ResponseWriter, r *http.Request, from PeerInfo) {
	ses := s.sessionOf(w, r, from)
	if ses == nil {
		return
	}
	ses.leave()
	s.end(ses, "its client ended it")
	w.WriteHeader(http.StatusNoContent)
}

// serverClosed is why sessions end that are still there.
const serverClosed = "the server is closed"

// end ends a session, once.
func (s *Server) end(ses *session, why string) {
	if !ses.end() {
		return
	}
	s.table.remove(ses)
	level := hclog.Info
	if why == serverClosed { // of all at once
		level = hclog.Debug
	}
	s.cfg.Log.Log(level, "session ended", "session", ses.tag, "why", why)
	ses.upper.Close()
}

// sweep is the one clock of all sessions.
func (s *Server) sweep() {
	defer close(s.stopped)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var all []*session
	var posts []*solo
	for {
		select {
		case <-s.stop:
			return
		case <-s.stores.full:
			s.trimStores()
			continue
		case <-ticker.C:
		}
		now := s.clock.now.Add(1)
		all = s.table.all(all[:0])
		for _, ses := range all {
			if why := ses.sweep(now); why != "" {
				s.end(ses, why)
			}
		}
		clear(all)
		posts = s.solos.append(posts[:0])
		for _, x := range posts {
			x.sweep(now)
		}
		clear(posts)
		s.complain()
	}
}

// complain says in the log what was refused or forgotten for want of room since it was
// last asked.
func (s *Server) complain() {
	if n := s.table.takeRefused(); n > 0 {
		s.cfg.Log.Warn("sessions refused: there are too many", "refused", n, "sessions", s.Sessions())
	}
	if n := s.solos.takeRefused(); n > 0 {
		s.cfg.Log.Warn("requests refused: too many are under way", "refused", n)
	}
	if n := s.stores.trimmed; n > 0 {
		s.stores.trimmed = 0
		s.cfg.Log.Warn("events and answers forgotten: sessions keep too much for clients that are away", "sessions", n)
	}
	if n := s.cfg.Bodies.takeRefused(); n > 0 {
		s.cfg.Log.Warn("requests refused: the bodies of others take the memory that there is for them", "refused", n)
	}
}
