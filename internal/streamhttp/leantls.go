package streamhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
)

// encrypt puts TLS on a connection, if the server speaks it. The handshake is the
// connection's own first task.
func (s *LeanServer) encrypt(raw net.Conn) net.Conn {
	if s.h2 == nil {
		return raw
	}
	return tls.Server(raw, s.h2.config)
}

// greet reports whether the connection is to be served here: its handshake, if
// there is one, has succeeded, and did not choose HTTP/2.
func (c *serverConn) greet() bool {
	conn, ok := c.Conn.(*tls.Conn)
	if !ok {
		return true
	}
	if err := conn.HandshakeContext(c.ctx); err != nil {
		c.srv.Log.Debug("a TLS handshake failed", "remote", c.remote, "error", err)
		c.decline(err)
		return false
	}
	if state := conn.ConnectionState(); state.NegotiatedProtocol != "h2" {
		c.tls = &state
		return true
	}
	c.srv.leave(c) // before it is one of the other server's: no connection counts twice
	c.srv.h2.give(conn)
	return false
}

// decline tells a client that speaks plain HTTP what it speaks to, and hangs up.
func (c *serverConn) decline(err error) {
	defer c.end()
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && plain.Conn != nil && isHTTP(plain.RecordHeader) {
		_, _ = io.WriteString(plain.Conn, "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nthis address speaks https\n")
	}
}

// isHTTP reports whether what should be the head of a TLS record begins a request.
func isHTTP(head [5]byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "DELET", "OPTIO"}, string(head[:]))
}

// cut closes a connection at once: a farewell in TLS could keep the caller waiting
// for a client that reads nothing.
func (c *serverConn) cut() { c.plain().Close() }

// plain is the connection without its encryption.
func (c *serverConn) plain() net.Conn {
	if conn, ok := c.Conn.(*tls.Conn); ok {
		return conn.NetConn()
	}
	return c.Conn
}

// handover gives connections that speak HTTP/2 to net/http's server. It is that
// server's listener.
type handover struct {
	server *StandardServer
	config *tls.Config // that offers both
	conns  chan net.Conn
	closed context.Context
	end    context.CancelFunc
	ended  chan struct{} // the server's Serve has returned
}

// handOver begins to serve what is handed over.
func (s *LeanServer) handOver() *handover {
	h := &handover{server: s.Standard(), config: s.TLSConfig.Clone(), conns: make(chan net.Conn), ended: make(chan struct{})}
	h.config.NextProtos = []string{"h2", "http/1.1"}
	h.server.TLSConfig = h.config
	h.closed, h.end = context.WithCancel(context.Background())
	go func() {
		defer close(h.ended)
		if err := h.server.Serve(h); !errors.Is(err, http.ErrServerClosed) {
			s.Log.Error("HTTP/2 is served no more", "error", err)
		}
	}()
	return h
}

// give hands a connection over, which is closed if the server is.
func (h *handover) give(conn net.Conn) {
	select {
	case h.conns <- conn:
	case <-h.closed.Done():
		conn.Close()
	}
}

// Accept implements net.Listener.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.closed.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handover) Close() error { h.end(); return nil }

// Addr implements net.Listener.
func (h *handover) Addr() net.Addr { return &net.TCPAddr{} }

// shutdown waits for what was handed over; nil has nothing. A connection that
// net/http has not entered yet misses its farewell (GOAWAY), so it is given again.
func (h *handover) shutdown(ctx context.Context) error {
	if h == nil {
		return nil
	}
	err := context.DeadlineExceeded
	for err != nil && ctx.Err() == nil {
		part, stop := context.WithTimeout(ctx, firstTime)
		err = h.server.Shutdown(part)
		stop()
	}
	<-h.ended
	return err
}

// close closes what was handed over.
func (h *handover) close() error {
	if h == nil {
		return nil
	}
	err := h.server.Close()
	<-h.ended
	return err
}
