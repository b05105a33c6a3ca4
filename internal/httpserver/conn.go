package httpserver

import (
	"container/list"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"
)

// conn is a connection of a [Server], below TLS where there is that. net/http reads and writes it.
type conn struct {
	net.Conn
	srv     *Server
	network netip.Prefix  // that it counts for; invalid: none
	place   *list.Element // among those without an admitted request; guarded by the table's mutex

	admitted atomic.Bool // it carried a request that was let in
	asked    atomic.Bool // it carried a request
	quiet    atomic.Bool // nothing has come since it was accepted, or became idle
	second   atomic.Bool // it speaks HTTP/2
	refused  atomic.Bool // its last answer was 401 or 403
	closed   atomic.Bool

	strange *time.Timer // closes it while it is idle after that; for ConnState alone, which is called by one goroutine at a time
}

// strangerIdle is how long a connection may be idle whose last answer was 401 or 403.
const strangerIdle = 5 * time.Second

// accept makes room for a connection and enters it; nil: there is no room, or the server was closed.
func (s *Server) accept(raw net.Conn) *conn {
	c := &conn{Conn: raw, srv: s, network: s.network(raw)}
	c.quiet.Store(true)
	victim, ok := s.table.add(c)
	if victim != nil {
		victim.Conn.Close()
	}
	if !ok {
		raw.Close()
	}
	if victim != nil || !ok {
		s.sayCrowded()
	}
	if !ok {
		return nil
	}
	if s.closing.Load() {
		c.farewell()
	}
	return c
}

// evict closes the connection that accept would close for another one.
func (s *Server) evict() {
	if c := s.table.oldest(); c != nil {
		c.Conn.Close()
		s.sayCrowded()
	}
}

func (s *Server) sayCrowded() {
	if n := s.table.crowded(); n > 0 {
		s.Log.Warn("connections were closed: there are too many", "closed", n, "max", s.MaxConnections)
	}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.quiet.Load() {
		c.quiet.Store(false)
	}
	return n, err
}

// Write implements net.Conn. Each write has its own deadline.
func (c *conn) Write(p []byte) (int, error) {
	_ = c.Conn.SetWriteDeadline(time.Now().Add(c.srv.WriteTimeout))
	return c.Conn.Write(p)
}

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

// farewell closes a connection at the end if it carries no request; one that has not carried any yet has some time to
// come with it. Those of HTTP/2 are net/http's to end.
func (c *conn) farewell() {
	switch {
	case c.second.Load():
	case c.asked.Load():
		c.cutIfQuiet()
	default:
		time.AfterFunc(firstTime, c.lastCall)
	}
}

// lastCall closes a connection that has not begun a request in time. What came on one with TLS may be its handshake.
func (c *conn) lastCall() {
	switch {
	case c.asked.Load():
	case c.srv.TLSConfig == nil:
		c.cutIfQuiet()
	case !waiting(c.Conn):
		c.cut()
	}
}

// cutStranger closes a connection that has been idle for long enough after a 401 or 403. On one of HTTP/2 more comes
// than requests.
func (c *conn) cutStranger() {
	if !c.second.Load() {
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
		if c.strange != nil {
			c.strange.Stop()
			c.strange = nil
		}
		c.begun(nc)
	case http.StateIdle:
		c.quiet.Store(true)
		if !c.admitted.Load() {
			c.srv.table.touch(c)
		}
		switch {
		case c.srv.closing.Load(): // its answer went out before that
			c.farewell()
		case c.refused.Load():
			c.strange = time.AfterFunc(strangerIdle, c.cutStranger)
		}
	}
}

// begun notes that a connection carries a request, or speaks HTTP/2, which is said before it does.
func (c *conn) begun(nc net.Conn) {
	if c.asked.Load() {
		return
	}
	if secured, ok := nc.(*tls.Conn); ok && secured.ConnectionState().NegotiatedProtocol == "h2" {
		c.second.Store(true)
		c.srv.table.wake()
	}
	c.asked.Store(true)
}
