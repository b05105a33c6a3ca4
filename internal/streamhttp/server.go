// Package streamhttp is the server's side of MCP's Streamable HTTP, in both eras: sessions
// (protocol revisions up to 2025-11-25), and requests by themselves (2026-07-28).
package streamhttp

import (
	"context"
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
	guard httpserver.Guard
	clock clock
	table table
	posts modernPosts

	requests inFlight
	moving   atomic.Pointer[atomic.Int64] // how many POSTs are under way that are to be served elsewhere
	stores   stores

	ending  context.Context    // ends with the server: then the sweeper does, and what is passed on without an end
	stop    context.CancelFunc // ends it
	stopped chan struct{}      // the sweeper has ended
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
		stopped: make(chan struct{}),
	}
	s.ending, s.stop = context.WithCancel(context.Background())
	s.moving.Store(new(atomic.Int64))
	s.requests.init()
	s.stores.init(cfg.StoreTotal)
	s.table.init(&s.cfg)
	s.posts.init(&s.cfg)
	go s.sweep()
	return s
}

// Sessions is how many sessions there are.
func (s *Server) Sessions() int { return s.table.len() }

// serverClosed is why sessions end that are still there.
const serverClosed = "the server is closed"

// movedOn is why sessions end here that go on in another process.
const movedOn = "its run goes on elsewhere"

// end ends a session, once.
func (s *Server) end(ses *session, why string) {
	if !ses.end() {
		return
	}
	s.table.remove(ses)
	level := hclog.Info
	if why == serverClosed || why == movedOn { // of many at once, and of those that go on
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
		case <-s.ending.Done():
			return
		case <-s.stores.full:
			s.trimStores()
			continue
		case <-ticker.C:
		}
		now := s.clock.now.Add(1)
		all = s.table.all(all[:0])
		for _, ses := range all {
			why := ses.sweep(now)
			if ses.moved() {
				why = movedOn
			}
			if why != "" {
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
	s.stop()
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
