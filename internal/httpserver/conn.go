package httpserver

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a connection of a [Server], below TLS where there is that. net/http reads and writes it.
type conn struct {
	net.Conn
	srv     *Server
	network netip.Prefix // that it counts for; invalid: none

	// Guarded by the table's mutex:
	place    *list.Element // among those that may be closed for another one
	stranger bool          // it carried no admitted request
	requests int           // under way, over HTTP/2

	admitted atomic.Bool // it carried a request that was let in
	asked    atomic.Bool // it carried a request
	active   atomic.Bool // it carries one, whose head has come
	quiet    atomic.Bool // nothing has come since it was accepted, or became idle
	http2    atomic.Bool // it speaks HTTP/2
	refused  atomic.Bool // its last answer was 401 or 403
	closed   atomic.Bool

	reading deadline

	early     int         // bytes that came before its first request; for the goroutine that reads
	idleTimer *time.Timer // closes it while it is idle after refused; for ConnState alone, which is called by one goroutine at a time
}

// strangerIdle is how long a connection may be idle whose last answer was 401 or 403.
const strangerIdle = 5 * time.Second

// accept makes room for a connection and enters it; nil: there is no room, or the server was closed.
func (s *Server) accept(raw net.Conn) *conn {
	c := &conn{Conn: raw, srv: s, network: s.network(raw)}
	c.quiet.Store(true)
	victim, ok := s.table.add(c)
	s.cutFor(victim, ok)
	if !ok {
		raw.Close()
		return nil
	}
	if s.closing.Load() {
		c.endIdle()
	}
	return c
}

// cutFor cuts off the connection that has made room for another one, or a request, and says that there was none.
func (s *Server) cutFor(victim *conn, ok bool) {
	if victim != nil {
		victim.Conn.Close()
	}
	if victim != nil || !ok {
		s.sayCrowded()
	}
}

// evict closes the connection that accept would close for another one, and reports whether there was one.
func (s *Server) evict() bool {
	c := s.table.oldest()
	if c == nil {
		return false
	}
	s.cutFor(c, true)
	return true
}

func (s *Server) sayCrowded() {
	if n := s.table.crowded(); n > 0 {
		s.Log.Warn("connections were closed: there are too many", "closed", n, "max", s.MaxConnections)
	}
}

// handshakeBytes is how much a client may send for its TLS handshake: crypto/tls would keep 256 KiB.
const handshakeBytes = 32 << 10

var errLongHandshake = errors.New("reading a TLS handshake: it is too long")

// Read implements net.Conn. What comes on an idle connection of HTTP/1.1 begins a request, which has to go on:
// net/http counts its time from the fourth byte on.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for err != nil && errors.Is(err, os.ErrDeadlineExceeded) && c.reading.moved(c.Conn) {
		n, err = c.Conn.Read(p)
	}
	if n > 0 && c.quiet.Load() {
		c.quiet.Store(false)
		if c.asked.Load() && !c.http2.Load() {
			_ = c.SetReadDeadline(time.Now().Add(c.srv.HeaderTimeout))
		}
	}
	if c.srv.TLSConfig != nil && !c.asked.Load() {
		if c.early += n; c.early > handshakeBytes+c.srv.MaxHeaderBytes {
			return 0, errLongHandshake
		}
	}
	return n, err
}

// Write implements net.Conn. Each write has its own deadline.
func (c *conn) Write(p []byte) (int, error) {
	_ = c.Conn.SetWriteDeadline(time.Now().Add(c.srv.WriteTimeout))
	return c.Conn.Write(p)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.reading.move(c.Conn, t) }

// SetWriteDeadline does nothing: see Write.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// Lingering: a connection closed with input unread is reset, and the client may lose the answer.
const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// Close implements net.Conn. Where input is unread it ends the sending side, and reads on for a little.
func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	defer c.srv.table.remove(c)
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if ok && c.asked.Load() && waiting(c.Conn) && half.CloseWrite() == nil {
		_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	return c.Conn.Close()
}

// cut closes a connection at once: a farewell in TLS could keep the caller waiting for a client that reads nothing.
func (c *conn) cut() {
	c.srv.table.remove(c)
	c.Conn.Close()
}

// cutIfQuiet cuts a connection off on which no request has come, be it that nobody has read it yet.
func (c *conn) cutIfQuiet() {
	if !waiting(c.Conn) && c.quiet.CompareAndSwap(true, false) {
		c.cut()
	}
}

// endIdle closes a connection at the end if it carries no request; one that has not carried any yet, or on which a
// head has begun to come, has some time to come with it. Those of HTTP/2 are net/http's to end.
func (c *conn) endIdle() {
	if c.http2.Load() {
		return
	}
	if c.asked.Load() {
		c.cutIfQuiet()
	}
	time.AfterFunc(firstTime, c.cutIfUnasked)
}

// cutIfUnasked closes a connection on which nothing has come of a request. What came on one with TLS may be its handshake.
func (c *conn) cutIfUnasked() {
	if c.asked.Load() || c.srv.TLSConfig == nil {
		c.cutIfQuiet()
	} else if !waiting(c.Conn) {
		c.cut()
	}
	time.AfterFunc(firstTime, c.cutIfHalf)
}

// cutIfHalf closes a connection that has been coming with a request for long enough.
func (c *conn) cutIfHalf() {
	if !c.active.Load() && !c.http2.Load() {
		c.cut()
	}
}

// cutUnlessKept closes a connection that could be closed for another one as well.
func (c *conn) cutUnlessKept() {
	if c.srv.table.replaceable(c) {
		c.cut()
	}
}

// cutStranger closes a connection that has been idle for long enough after a 401 or 403. On one of HTTP/2 more comes
// than requests.
func (c *conn) cutStranger() {
	if !c.http2.Load() {
		c.cutIfQuiet()
	} else if !waiting(c.Conn) {
		c.cut()
	}
}

// connKey is the context's key of a request's *conn.
type connKey struct{}

func withConn(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, below(nc))
}

// below is the connection that net/http has, without its TLS.
func below(nc net.Conn) *conn {
	if secured, ok := nc.(*tls.Conn); ok {
		nc = secured.NetConn()
	}
	return nc.(*conn)
}

// changed implements [http.Server.ConnState].
func changed(nc net.Conn, state http.ConnState) {
	c := below(nc)
	switch state {
	case http.StateActive:
		c.stopIdleTimer()
		c.quiet.Store(false) // what was there already was not read now
		c.active.Store(true)
		c.begun(nc)
	case http.StateIdle:
		c.active.Store(false)
		c.quiet.Store(true)
		if !c.admitted.Load() {
			c.srv.table.free(c)
		}
		switch {
		case c.srv.closing.Load(): // its answer went out before that
			c.endIdle()
		case c.refused.Load():
			c.idleTimer = time.AfterFunc(strangerIdle, c.cutStranger)
		}
	case http.StateClosed:
		c.stopIdleTimer()
	}
}

func (c *conn) stopIdleTimer() {
	if c.idleTimer != nil {
		c.idleTimer.Stop()
		c.idleTimer = nil
	}
}

// begun notes that a connection carries a request, or speaks HTTP/2, which is said before it does.
func (c *conn) begun(nc net.Conn) {
	if c.asked.Load() {
		return
	}
	if secured, ok := nc.(*tls.Conn); ok && secured.ConnectionState().NegotiatedProtocol == "h2" {
		c.http2.Store(true)
		c.srv.table.wake()
	}
	c.asked.Store(true)
}

// serve has the handler answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	out := &response{ResponseWriter: w, conn: r.Context().Value(connKey{}).(*conn), last: len(r.TransferEncoding) > 0}
	if r.ProtoMajor > 1 {
		victim, ok := s.table.begin(out.conn)
		s.cutFor(victim, ok)
		if !ok { // without a body, which the client could keep waiting
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer s.table.end(out.conn)
		out.control = http.NewResponseController(w)
	}
	s.Handler.ServeHTTP(out, r)
	out.begin(http.StatusOK)
	if out.control != nil && out.wrote { // while it counts: the client may not let it come
		_ = out.FlushError()
	}
	out.arm() // for what net/http still holds
}

// response is an [http.ResponseWriter] of a [Server].
type response struct {
	http.ResponseWriter
	conn    *conn
	control *http.ResponseController // of HTTP/2, whose streams have deadlines of their own; nil: HTTP/1.1
	begun   bool                     // its status is set
	wrote   bool                     // it has a body
	// last says that the connection ends with the answer. It does behind a chunked request: that may have had a
	// Content-Length as well, which net/http drops and another reader may have gone by (RFC 9112, section 6.1).
	last bool
}

// Admit keeps the connection of a request that is let in: it is not closed for new ones. Who asks must be known by
// then, where that matters. Of another server's request nothing is noted.
func Admit(w http.ResponseWriter) {
	if r, ok := w.(*response); ok && !r.conn.admitted.Load() {
		r.conn.admitted.Store(true)
		r.conn.srv.table.known(r.conn)
	}
}

// Keep keeps the connection of a request until it is idle: for requests that are not to be lost although nobody knows
// who asks. What it carries counts for the share of its address as before.
func Keep(w http.ResponseWriter) {
	if r, ok := w.(*response); ok && !r.conn.admitted.Load() {
		r.conn.srv.table.keep(r.conn)
	}
}

// Unwrap is for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// begin notes what the answer is, and has the connection closed behind it if the server retires. What HTTP/2 says in
// place of the header, net/http knows.
func (w *response) begin(status int) {
	if w.begun {
		return
	}
	w.begun = true
	refused := status == http.StatusUnauthorized || status == http.StatusForbidden
	if w.conn.refused.Load() != refused {
		w.conn.refused.Store(refused)
	}
	if w.last || w.conn.srv.retiring.Load() {
		w.Header()["Connection"] = []string{"close"}
	}
}

// Write implements http.ResponseWriter.
func (w *response) Write(text []byte) (int, error) {
	w.begin(http.StatusOK)
	w.wrote = true
	w.arm()
	defer w.lift()
	return w.ResponseWriter.Write(text)
}

// FlushError implements what [http.ResponseController] flushes with.
func (w *response) FlushError() error {
	w.begin(http.StatusOK)
	w.arm()
	defer w.lift()
	return w.ResponseWriter.(interface{ FlushError() error }).FlushError()
}

// arm gives what is written next on an HTTP/2 stream its time. A deadline that passes between two writes would end the
// stream, so that lift takes it back.
func (w *response) arm() {
	if w.control != nil {
		_ = w.control.SetWriteDeadline(time.Now().Add(w.conn.srv.WriteTimeout))
	}
}

func (w *response) lift() {
	if w.control != nil {
		_ = w.control.SetWriteDeadline(time.Time{})
	}
}

// deadline is the read deadline of a connection, which net/http moves several times for each request, mostly to later.
// What is set on the connection may be earlier: moving it away costs nothing, and when it passes all the same the reader
// asks moved. It is safe for concurrent use.
type deadline struct {
	mu        sync.Mutex // guards what follows
	want, set time.Time  // the deadline, and the one that is set; zero: none
}

// move changes the deadline.
func (d *deadline) move(c net.Conn, t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.want = t
	if t.IsZero() || !d.set.IsZero() && !t.Before(d.set) {
		return nil
	}
	d.set = t
	return c.SetReadDeadline(t)
}

// moved reports whether the deadline that has passed was moved to later, and sets the one that holds.
func (d *deadline) moved(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.want.IsZero() && !d.want.After(time.Now()) {
		return false
	}
	d.set = d.want
	return c.SetReadDeadline(d.want) == nil
}
