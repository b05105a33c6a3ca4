// Package httpserver serves HTTP/1.1 and HTTP/2 by net/http, and adds what a listener needs that anybody may
// connect to: a bound on connections, a deadline for each write, and an orderly end.
package httpserver

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Server serves a handler on listeners by an [http.Server], which reads, writes and frames everything. It adds:
//
//   - There are never more connections than MaxConnections, where of the requests that an HTTP/2 connection carries at
//     once each but the first counts as one. At the limit the one is closed for a new one that has been there for
//     longest, and carried no admitted request (see [Admit] and [Keep]). Where all have, the new one is closed, or the
//     request answered 503.
//   - Each write has a deadline of its own, so that streams and answers may last for as long as their client reads.
//   - A connection whose last answer was 401 or 403 may be idle for 5 s.
//   - Retire and Shutdown end it without cutting off anybody who has connected or asked.
//
// Its fields must not be changed once it serves. It is safe for concurrent use.
type Server struct {
	Handler http.Handler
	// HeaderTimeout is how long a request may take to arrive, head and body, unless the handler sets a read deadline
	// for the body; 0: 10 s.
	HeaderTimeout time.Duration
	// WriteTimeout is how long a client may take to accept what is written at once; 0: 30 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection may be idle; 0: 5 minutes.
	IdleTimeout time.Duration
	// MaxHeaderBytes bounds a request's line and header; 0: 32 KiB.
	MaxHeaderBytes int
	// MaxConnections is how many connections there may be; 0: 10,000.
	MaxConnections int
	// AddressShare is how many of them one remote address (IPv6: one /64 network) may have that carried no admitted
	// request; 0: half of them. Loopback addresses may have all.
	AddressShare int
	// Gateway reports whether an address is a gateway's, behind which many clients stand: it may have all
	// connections. Nil: none is.
	Gateway func(netip.Addr) bool
	// TLSConfig has the server speak TLS, and nothing else, with HTTP/2 for clients that take it; nil: plain HTTP/1.1.
	TLSConfig *tls.Config
	// Log is told of panics, and of connections that are closed for want of room; nil: nothing is logged.
	Log hclog.Logger

	begin    sync.Once // fills what follows
	http     http.Server
	table    table
	retiring atomic.Bool
	closing  atomic.Bool // Shutdown or Close was called

	mu        sync.Mutex // guards what follows
	listeners map[*listener]struct{}
	serving   sync.WaitGroup // calls of Serve; Add is called under mu, and not once closing is set
}

func (s *Server) fill() {
	s.begin.Do(func() {
		orElse(&s.HeaderTimeout, 10*time.Second)
		orElse(&s.WriteTimeout, 30*time.Second)
		orElse(&s.IdleTimeout, 5*time.Minute)
		orElse(&s.MaxHeaderBytes, 32<<10)
		orElse(&s.MaxConnections, 10_000)
		orElse(&s.AddressShare, (s.MaxConnections+1)/2)
		if s.Log == nil {
			s.Log = hclog.NewNullLogger()
		}
		s.table.init(s.MaxConnections, s.AddressShare)
		s.http = http.Server{
			Handler:                      http.HandlerFunc(s.serve),
			ConnContext:                  withConn,
			ConnState:                    changed,
			DisableGeneralOptionsHandler: true,
			ReadHeaderTimeout:            s.HeaderTimeout,
			ReadTimeout:                  s.HeaderTimeout,
			IdleTimeout:                  s.IdleTimeout,
			MaxHeaderBytes:               max(s.MaxHeaderBytes-4<<10, 1), // net/http adds 4 KiB
			TLSConfig:                    s.TLSConfig,
			HTTP2: &http.HTTP2Config{
				MaxConcurrentStreams:          streams,
				MaxReadFrameSize:              frame,
				MaxReceiveBufferPerConnection: receiveBuffer,
				MaxReceiveBufferPerStream:     receiveBuffer,
			},
			ErrorLog: log.New(complaints{s.Log}, "", 0),
		}
	})
}

// What a connection of HTTP/2 may take before anybody knows whose it is.
const (
	streams       = 100      // requests at a time
	frame         = 16 << 10 // the longest frame; a buffer as long is kept
	receiveBuffer = 64 << 10 // what may come that nobody has read
)

func orElse[T int | time.Duration](value *T, def T) {
	if *value <= 0 {
		*value = def
	}
}

// Serve serves the connections of l, until l fails or the server is closed: then the error is [http.ErrServerClosed].
func (s *Server) Serve(l net.Listener) error {
	s.fill()
	own := &listener{Listener: l, srv: s}
	if !s.enter(own) {
		l.Close()
		return http.ErrServerClosed
	}
	defer s.leave(own)
	var err error
	if s.TLSConfig != nil {
		err = s.http.ServeTLS(own, "", "")
	} else {
		err = s.http.Serve(own)
	}
	if s.closing.Load() {
		return http.ErrServerClosed
	}
	return err
}

func (s *Server) enter(l *listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	if s.listeners == nil {
		s.listeners = make(map[*listener]struct{})
	}
	s.listeners[l] = struct{}{}
	s.serving.Add(1)
	return true
}

func (s *Server) leave(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
	s.serving.Done()
}

// Connections is how many connections there are.
func (s *Server) Connections() int {
	s.fill()
	return s.table.len()
}

// Retire has every connection closed behind its next answer, which tells the client so. New ones are still accepted,
// for a balancer that has not yet heard: [Server.Shutdown] ends that.
func (s *Server) Retire() { s.retiring.Store(true) }

// firstTime is how long a connection may still take at the end to come with its first request: who has just connected
// is about to.
const firstTime = 500 * time.Millisecond

// strangerEnd is how long connections that carried no admitted request, and carry none that is kept, may hold up the end.
const strangerEnd = 2 * time.Second

// Shutdown accepts no more connections, closes idle ones, and waits for the others to answer the request they carry,
// or for ctx to end: that is the error. What has connected and was only not accepted yet is served as well. A
// connection that has not carried a request yet has half a second to come with one. One that may be closed for want of
// room has 2 s in all.
//
// [http.Server.Shutdown] alone waits 5 s for such a connection, resets what was not accepted, and closes idle
// connections in front of a request that has come: here it only ends HTTP/2 connections, when there are no others.
func (s *Server) Shutdown(ctx context.Context) error {
	s.fill()
	s.Retire()
	for _, l := range s.close() {
		l.hangUp()
	}
	s.table.each(func(c *conn) { c.endIdle() })
	defer time.AfterFunc(strangerEnd, func() { s.table.each((*conn).cutUnlessKept) }).Stop()
	if err := wait(ctx, s.serving.Wait); err != nil {
		return err
	}
	if err := s.table.drained(ctx); err != nil {
		return err
	}
	ended := make(chan error, 1) // it waits for a client that reads nothing, whatever ctx is
	go func() { ended <- s.http.Shutdown(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait waits for f to return, or for ctx to end.
func wait(ctx context.Context, f func()) error {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes all listeners and connections. It does not wait for handlers.
func (s *Server) Close() error {
	s.fill()
	for _, l := range s.close() {
		l.Close()
	}
	s.table.each((*conn).cut) // first: http.Server.Close would wait for clients that read nothing
	err := s.http.Close()
	s.serving.Wait()
	s.table.each((*conn).cut)
	return err
}

// close marks the server as closing, and returns the listeners there are.
func (s *Server) close() []*listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing.Store(true)
	all := make([]*listener, 0, len(s.listeners))
	for l := range s.listeners {
		all = append(all, l)
	}
	return all
}

// complaints is the log of net/http's server: a handshake that fails is a client's business.
type complaints struct{ log hclog.Logger }

// Write takes one line.
func (c complaints) Write(line []byte) (int, error) {
	switch text := strings.TrimSpace(string(line)); {
	case strings.Contains(text, "panic"):
		c.log.Error(text)
	case strings.Contains(text, "Accept error"):
		c.log.Warn(text)
	default:
		c.log.Debug(text)
	}
	return len(line), nil
}
