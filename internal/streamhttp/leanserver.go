package streamhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// LeanServer serves an [http.Handler] over HTTP/1.1 on one goroutine a
// connection. It does what [http.Server] does for such a handler at less than
// half the cost, and differs in this:
//
//   - A request with a folded header line, with more than one Content-Length, or
//     with Content-Length beside Transfer-Encoding is refused.
//   - The request's context ends with the connection, and a client that has gone
//     away is noticed while an answer is streamed, not while one is waited for.
//   - Nobody guesses a Content-Type, trailers are dropped, there is no Hijack,
//     and 1xx statuses are not sent, but for 100 Continue.
//   - Time limits are kept to the second.
//   - The [http.Request], the [http.ResponseWriter] and its header map are used
//     again for the connection's next request: handlers must not keep them. The
//     request's own header they may keep, but must not change.
//
// Its fields must not be changed once it serves. It is safe for concurrent use.
type LeanServer struct {
	Handler http.Handler
	// HeaderTimeout is how long the head of a request may take to arrive, and
	// then its body, unless the handler sets a read deadline; 0: 10 s.
	HeaderTimeout time.Duration
	// WriteTimeout is how long the client may take to accept what is written at
	// once, unless the handler sets a write deadline; 0: 60 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection may be idle; 0: 5 minutes.
	IdleTimeout time.Duration
	// MaxHeaderBytes bounds a request's line and header; 0: 32 KiB.
	MaxHeaderBytes int
	// TLSConfig has the server speak TLS, and nothing else. A client that takes
	// HTTP/2 is served by [LeanServer.Standard]; nil: plain HTTP.
	TLSConfig *tls.Config
	// Log is told of panics and refused requests; nil: nothing is logged.
	Log hclog.Logger

	now      atomic.Int64 // in ticks, kept by sweep
	date     atomic.Pointer[string]
	retiring atomic.Bool // connections end with their next answer
	closing  atomic.Bool // set under mu

	mu        sync.Mutex // guards what follows
	listeners map[net.Listener]struct{}
	conns     map[*serverConn]struct{}
	sweeping  bool
	ended     bool          // no connection is taken any more
	h2        *handover     // to the server for HTTP/2; nil without TLS
	empty     chan struct{} // closes when the server is closing and has no listener and no connection left
}

// start fills the defaults and enters a listener. It reports false if the
// server is closing.
func (s *LeanServer) start(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	if s.conns == nil {
		s.fill()
	}
	s.listeners[l] = struct{}{}
	if !s.sweeping {
		s.sweeping = true
		go s.sweep()
	}
	return true
}

func (s *LeanServer) fill() {
	s.conns = make(map[*serverConn]struct{})
	s.listeners = make(map[net.Listener]struct{})
	s.empty = make(chan struct{})
	s.fillLimits()
	if s.TLSConfig != nil {
		s.h2 = s.handOver()
	}
	s.setDate()
}

func (s *LeanServer) fillLimits() {
	orElse(&s.HeaderTimeout, 10*time.Second)
	orElse(&s.WriteTimeout, 60*time.Second)
	orElse(&s.IdleTimeout, 5*time.Minute)
	orElse(&s.MaxHeaderBytes, 32<<10)
	if s.Log == nil {
		s.Log = hclog.NewNullLogger()
	}
}

func (s *LeanServer) setDate() {
	date := time.Now().UTC().Format(http.TimeFormat)
	s.date.Store(&date)
}

// Serve serves the connections of l, until l fails or the server is closed: then
// the error is [http.ErrServerClosed].
func (s *LeanServer) Serve(l net.Listener) error {
	defer l.Close()
	if !s.start(l) {
		return http.ErrServerClosed
	}
	defer s.forget(l)
	wait, rounds := time.Duration(0), 0
	for {
		raw, err := l.Accept()
		switch ending := s.closing.Load(); {
		case err == nil:
			wait = 0
			if !s.take(raw, ending) {
				return http.ErrServerClosed
			}
			continue
		case ending:
			if rounds++; rounds == queueRounds || !waiting(l) || !extend(l) {
				return http.ErrServerClosed
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				continue
			}
		case !temporary(err):
			return err
		}
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		s.Log.Warn("accepting a connection: trying again", "error", err, "after", wait)
		time.Sleep(wait)
	}
}

// take serves a connection. It reports false if the server was closed.
func (s *LeanServer) take(raw net.Conn, ending bool) bool {
	c := newServerConn(s, s.encrypt(raw))
	if !s.enter(c) {
		raw.Close()
		return false
	}
	go c.serve()
	if ending {
		time.AfterFunc(firstTime, c.closeIfIdle)
	}
	return true
}

// temporary reports whether accepting may succeed later: file descriptors may
// be short, or a client was gone too soon.
func temporary(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && e.Temporary()
}

func (s *LeanServer) forget(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
	s.emptyLocked()
}

// enter enters a connection unless the server was closed.
func (s *LeanServer) enter(c *serverConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *LeanServer) leave(c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.emptyLocked()
}

func (s *LeanServer) emptyLocked() {
	if !s.closing.Load() || len(s.listeners) > 0 || len(s.conns) > 0 {
		return
	}
	select {
	case <-s.empty:
	default:
		close(s.empty)
	}
}

// firstTime is how long a new connection may still take at the end to come with
// its request: who has just connected is about to.
const firstTime = 500 * time.Millisecond

// Shutdown accepts no more connections, closes idle ones, and waits for the
// others to answer the request they carry, or for ctx to end: that is the error.
// A connection that has not carried a request yet has half a second to come with
// one.
func (s *LeanServer) Shutdown(ctx context.Context) error {
	for _, c := range s.close(false) {
		if c.fresh.Load() {
			time.AfterFunc(firstTime, c.closeIfIdle)
		} else {
			c.closeIfIdle()
		}
	}
	select {
	case <-s.empty:
		return s.h2.shutdown(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes all listeners and connections. It does not wait for handlers.
func (s *LeanServer) Close() error {
	for _, c := range s.close(true) {
		c.cut()
	}
	return s.h2.close()
}

// close ends the listeners, at once or when they have given out what has
// connected, and returns the connections there are.
func (s *LeanServer) close(now bool) []*serverConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		s.fill()
	}
	s.closing.Store(true)
	s.retiring.Store(true)
	s.ended = s.ended || now
	for l := range s.listeners {
		if now {
			l.Close()
		} else {
			hangUp(l)
		}
	}
	s.emptyLocked()
	return s.connsLocked(nil)
}

func (s *LeanServer) connsLocked(all []*serverConn) []*serverConn {
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// sweep is the one clock of all connections: a deadline for each request would
// cost more than reading it. It ends when the server is closed and empty.
func (s *LeanServer) sweep() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var all []*serverConn
	for {
		select {
		case <-s.empty:
			return
		case <-ticker.C:
		}
		s.setDate()
		now := s.now.Add(1)
		s.mu.Lock()
		all = s.connsLocked(all[:0])
		s.mu.Unlock()
		for _, c := range all {
			c.sweep(now)
		}
		clear(all)
	}
}
