// Package streamhttp is the server's side of MCP's Streamable HTTP, in both eras: sessions
// (protocol revisions up to 2025-11-25), and requests by themselves (2026-07-28).
package streamhttp

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// retryAfter is how long a client waits that is sent away, in seconds: by then
// a balancer knows better where to send it.
const retryAfter = "1"

// Server is the server end of Streamable HTTP: an [http.Handler] for one path.
// Make it with [NewServer], serve it with an [httpserver.Server], which gives each
// write its deadline, end it with [Server.Close].
//
// An answer is JSON as long as nothing else belongs to its request and it does
// not take long (see [ServerConfig.Patience]); else the POST becomes an event
// stream, whose events the client can ask for again.
type Server struct {
	cfg   ServerConfig
	guard httpserver.Guard
	clock clock
	table table
	posts modernPosts

	requests inFlight
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
		guard:   httpserver.NewGuard(cfg.Loopback, cfg.AllowedHosts, cfg.AllowedOrigins),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	s.requests.init()
	s.stores.init(cfg.StoreTotal)
	s.table.init(&s.cfg)
	s.posts.init(&s.cfg)
	go s.sweep()
	return s
}

// Sessions is how many sessions there are.
func (s *Server) Sessions() int { return s.table.len() }

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, ok := s.admit(w, r)
	if !ok {
		return
	}
	// Who is not let in does not count: Close does not wait for who reads no refusal.
	if !s.requests.enter() {
		w.Header()["Retry-After"] = []string{retryAfter}
		s.refuse(w, r, ReasonEnding, http.StatusServiceUnavailable, "shutting down")
		return
	}
	defer s.requests.leave()
	run, ok := s.run(r)
	if !ok {
		s.refuse(w, r, ReasonPath, http.StatusNotFound, "nothing here: MCP is served at "+s.cfg.Path)
		return
	}
	from := PeerInfo{RemoteAddr: r.RemoteAddr, Header: r.Header, Principal: who, Run: run}
	switch modern := r.Method != http.MethodPost && s.modern(r.Header); {
	case r.Method == http.MethodPost:
		s.post(w, r, from)
	case r.Method == http.MethodGet && !modern:
		s.get(w, r, from)
	case r.Method == http.MethodDelete && !modern:
		s.delete(w, r, from)
	default:
		allow, text := valueAllow, "use POST, GET or DELETE"
		if modern {
			allow, text = valuePost, "use POST: there are no sessions in this revision"
		}
		w.Header()["Allow"] = allow
		s.refuse(w, r, ReasonMethod, http.StatusMethodNotAllowed, text)
	}
}

// admit says who is asking, if the request may go on; else it is answered.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (who wire.Principal, ok bool) {
	origins := r.Header["Origin"]
	switch {
	case !s.guard.Host(r.Host):
		s.refuse(w, r, ReasonHost, http.StatusForbidden, "this Host is not served here: start the proxy with --allowed-host to allow it")
		return who, false
	case len(origins) > 1 || len(origins) == 1 && !s.guard.Origin(origins[0]):
		s.refuse(w, r, ReasonOrigin, http.StatusForbidden, "this Origin is not served here: start the proxy with --allowed-origin to allow it")
		return who, false
	case len(origins) == 1 && cors(w, r, origins[0]), s.cfg.Public != nil && s.cfg.Public(w, r):
		return who, false
	}
	if s.cfg.Authenticate != nil {
		if who, ok = s.cfg.Authenticate(w, r); !ok {
			return who, false
		}
		httpserver.Admit(w)
	}
	return who, true
}

// cors tells browsers what an allowed origin may do, and reports whether the
// request was answered by that.
func cors(w http.ResponseWriter, r *http.Request, origin string) bool {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
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
	var posts []*post
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
		posts = s.posts.append(posts[:0])
		for _, p := range posts {
			p.sweep(now)
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
	if n := s.posts.takeRefused(); n > 0 {
		s.cfg.Log.Warn("requests refused: too many are under way", "refused", n)
	}
	if n := s.stores.trimmed; n > 0 {
		s.stores.trimmed = 0
		s.cfg.Log.Warn("events and answers forgotten: sessions keep too much for clients that are away", "sessions", n)
	}
	if n := s.cfg.Bodies.TakeRefused(); n > 0 {
		s.cfg.Log.Warn("requests refused: the bodies of others take the memory that there is for them", "refused", n)
	}
}

// Close refuses new requests, ends every session and its GET streams, and waits
// until all requests are answered or ctx ends; then the error is ctx's. What
// is kept for clients that have gone away is lost, and the log says how much.
func (s *Server) Close(ctx context.Context) error {
	if !s.requests.close() {
		return nil
	}
	close(s.stop)
	<-s.stopped
	all := s.table.all(nil)
	for _, ses := range all {
		s.end(ses, serverClosed)
	}
	s.posts.close()
	var err error
	select {
	case <-s.requests.empty:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if n := unfetched(all); n > 0 {
		s.cfg.Log.Warn("answers are lost: their clients had gone away, and have not come back for them", "answers", n)
	}
	return err
}

// unfetched counts the answers that no connection has taken.
func unfetched(all []*session) (n int) {
	for _, ses := range all {
		ses.mu.Lock()
		for _, b := range ses.streams {
			if b.over && !b.done() && !b.forgotten {
				n++
			}
		}
		ses.mu.Unlock()
	}
	return n
}

// inFlight counts the requests under way until it is closed: from then on no more
// begin. It is what a mutex and a WaitGroup do together, at half the price. It is
// safe for concurrent use; its zero value is not ready.
type inFlight struct {
	_     cacheLine
	n     atomic.Int64 // with shut added once it is closed
	_     cacheLine
	empty chan struct{} // closes when it is closed and nothing is under way
	once  sync.Once     // for that
}

const shut = 1 << 62

// cacheLine keeps apart what every request writes from what every request only reads: what
// lies on one cache line with it would have to be fetched again each time.
type cacheLine [64]byte

func (u *inFlight) init() { u.empty = make(chan struct{}) }

// enter reports whether one more may begin; then leave is to be called.
func (u *inFlight) enter() bool {
	if u.n.Add(1) < shut {
		return true
	}
	u.leave()
	return false
}

func (u *inFlight) leave() {
	if u.n.Add(-1) == shut {
		u.once.Do(func() { close(u.empty) })
	}
}

// close lets no more begin, and reports whether it is the first to do so.
func (u *inFlight) close() bool {
	for {
		n := u.n.Load()
		if n >= shut {
			return false
		}
		if u.n.CompareAndSwap(n, n+shut+1) {
			u.leave() // as if one had been under way until now
			return true
		}
	}
}

func (u *inFlight) closed() bool { return u.n.Load() >= shut }
