package streamhttp

import (
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Standard returns net/http's server with s's handler under s's limits, for what s
// does not speak: HTTP/2.
//
// A write deadline of net/http's ends an HTTP/2 stream when it passes, even between
// two writes, so here deadlines hold while something is written and at no other
// time. The head of an HTTP/2 request is bounded by IdleTimeout only.
func (s *LeanServer) Standard() *StandardServer {
	s.fillLimits()
	out := &StandardServer{lean: s}
	out.Server = http.Server{
		Handler:                      http.HandlerFunc(out.serve),
		ConnState:                    out.count,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            s.HeaderTimeout,
		WriteTimeout:                 s.WriteTimeout,
		IdleTimeout:                  s.IdleTimeout,
		MaxHeaderBytes:               max(s.MaxHeaderBytes-4<<10, 1), // net/http adds 4 KiB
		HTTP2:                        &http.HTTP2Config{WriteByteTimeout: s.WriteTimeout},
		ErrorLog:                     log.New(complaints{s.Log}, "", 0),
	}
	return out
}

// StandardServer is net/http's server with a [LeanServer]'s handler and limits.
type StandardServer struct {
	http.Server
	lean    *LeanServer
	retired atomic.Bool
	conns   atomic.Int64
}

// Retire has each connection close with its next answer, as [LeanServer.Retire].
func (s *StandardServer) Retire() { s.retired.Store(true) }

// Connections is how many connections there are.
func (s *StandardServer) Connections() int { return int(s.conns.Load()) }

func (s *StandardServer) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.conns.Add(-1)
	}
}

// complaints is the log of net/http's server: a handshake that fails is a client's
// business.
type complaints struct{ log hclog.Logger }

// Write takes one line.
func (c complaints) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "panic") {
		c.log.Error(text)
	} else {
		c.log.Debug(text)
	}
	return len(line), nil
}

// serve has the handler answer within the limits for bodies and answers.
func (s *StandardServer) serve(w http.ResponseWriter, r *http.Request) {
	out := &timelyWriter{ResponseWriter: w, control: http.NewResponseController(w), srv: s, lifts: r.ProtoMajor > 1}
	if r.ContentLength != 0 {
		_ = out.control.SetReadDeadline(time.Now().Add(s.lean.HeaderTimeout))
	}
	out.lift()
	s.lean.Handler.ServeHTTP(out, r)
	out.arm() // for what net/http still holds
}

// timelyWriter gives each write its time: until the deadline that the handler has
// set, or else the server's.
type timelyWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	srv     *StandardServer
	lifts   bool         // no deadline may pass between two writes
	until   atomic.Int64 // the handler's deadline, in nanoseconds since 1970; 0: none
}

func (w *timelyWriter) arm() {
	now := time.Now()
	until := time.Unix(0, w.until.Load())
	if !until.After(now) {
		until = now.Add(w.srv.lean.WriteTimeout)
	}
	_ = w.control.SetWriteDeadline(until)
}

func (w *timelyWriter) lift() {
	if w.lifts {
		_ = w.control.SetWriteDeadline(time.Time{})
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *timelyWriter) WriteHeader(status int) {
	w.part()
	w.ResponseWriter.WriteHeader(status)
}

// part has the connection closed behind the answer, if the server retires. What
// HTTP/2 says in place of the header, net/http knows.
func (w *timelyWriter) part() {
	if w.srv.retired.Load() {
		w.Header()["Connection"] = []string{"close"}
	}
}

// Write implements http.ResponseWriter.
func (w *timelyWriter) Write(text []byte) (int, error) {
	w.part()
	w.arm()
	defer w.lift()
	return w.ResponseWriter.Write(text)
}

// FlushError implements what [http.ResponseController] flushes with.
func (w *timelyWriter) FlushError() error {
	w.arm()
	defer w.lift()
	return w.control.Flush()
}

// SetWriteDeadline limits the writes that follow.
func (w *timelyWriter) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		w.until.Store(0)
	} else {
		w.until.Store(t.UnixNano())
	}
	return nil
}

// SetReadDeadline limits the reading of the request's body.
func (w *timelyWriter) SetReadDeadline(t time.Time) error { return w.control.SetReadDeadline(t) }
