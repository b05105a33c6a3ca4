package streamhttp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// serverConn is one connection of a [LeanServer]. Its goroutine serves one
// request after the other; only what is said to be shared is anybody else's.
type serverConn struct {
	net.Conn
	srv    *LeanServer
	remote string
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	tls    *tls.ConnectionState // nil: plain HTTP
	in     source
	br     *bufio.Reader // of in; nil while nothing has come
	known  knownRequests
	req    leanRequest
	resp   leanResponse

	// Shared:
	idle  atomic.Bool  // waits for a request, and may be closed
	fresh atomic.Bool  // no request has come yet
	due   atomic.Int64 // the tick in which it is closed; 0: never
	// Whether a deadline of the handler's holds:
	readLimit, writeLimit atomic.Bool

	mu       sync.Mutex    // guards what follows
	streamed bool          // an answer is being streamed
	watched  chan struct{} // closed when the watcher of that has ended; nil: none
}

func newServerConn(s *LeanServer, raw net.Conn) *serverConn {
	c := &serverConn{Conn: raw, srv: s, remote: raw.RemoteAddr().String()}
	c.in.init(c)
	c.resp.init(c)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.limit(s.HeaderTimeout)
	c.idle.Store(true)
	c.fresh.Store(true)
	return c
}

// limit has the connection closed after d; 0: never.
func (c *serverConn) limit(d time.Duration) {
	due := int64(0)
	if d > 0 {
		due = c.srv.now.Load() + ticks(d) + 1
	}
	if c.due.Load() != due {
		c.due.Store(due)
	}
}

// serve serves the connection's requests.
func (c *serverConn) serve() {
	defer c.srv.leave(c)
	if !c.greet() {
		return
	}
	defer c.end()
	for c.await() == nil && c.idle.CompareAndSwap(true, false) {
		c.limit(c.srv.HeaderTimeout)
		req, refusal := c.readRequest()
		if req == nil {
			c.refuse(refusal)
			return
		}
		if !c.answer(req) {
			return
		}
		c.limit(c.srv.IdleTimeout)
		if c.fresh.Load() {
			c.fresh.Store(false)
		}
		c.idle.Store(true)
		if c.srv.closing.Load() {
			return
		}
	}
}

// end closes the connection, and says what a handler panicked with.
func (c *serverConn) end() {
	if err := recover(); err != nil && err != http.ErrAbortHandler {
		c.srv.Log.Error("a handler panicked", "remote", c.remote, "panic", err, "stack", string(debug.Stack()))
	}
	c.cancel()
	c.Close()
	c.unwatch()
	if c.br != nil {
		putReader(c.br)
	}
}

// answer has a request answered. It reports whether the connection can carry
// another one.
func (c *serverConn) answer(req *leanRequest) bool {
	c.resp.begin(req)
	c.srv.Handler.ServeHTTP(&c.resp, &req.Request)
	whole := c.resp.finish()
	c.unwatch()
	if c.readLimit.Swap(false) {
		_ = c.SetReadDeadline(time.Time{})
	}
	if c.writeLimit.Swap(false) {
		_ = c.SetWriteDeadline(time.Time{})
	}
	switch {
	case !whole:
		return false
	case c.resp.close:
		if !req.body.read() || c.unread() {
			c.linger()
		}
		return false
	case !req.body.read():
		c.limit(c.srv.HeaderTimeout)
		return req.body.drain()
	}
	return true
}

// unread reports whether something has come that nobody has read. The watcher of
// a stream leaves no buffer where nothing has.
func (c *serverConn) unread() bool { return c.br != nil && c.br.Buffered() > 0 }

// refuse answers what is no request, and hangs up.
func (c *serverConn) refuse(r refusal) {
	if r.status == 0 {
		return
	}
	c.srv.Log.Debug("a request was refused", "remote", c.remote, "why", r.text)
	c.limit(c.srv.WriteTimeout)
	if _, err := io.WriteString(c, r.String()); err == nil {
		c.linger()
	}
}

// Lingering: a connection closed with input unread is reset, and the client
// may lose the answer.
const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// linger ends the sending side and reads on for a little.
func (c *serverConn) linger() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
}

// closeIfIdle closes a connection that carries no request. One that has come, and
// was not read yet, is served.
func (c *serverConn) closeIfIdle() {
	if !waiting(c.plain()) && c.idle.CompareAndSwap(true, false) {
		c.cut()
	}
}

// sweep closes a connection whose time is over, and has streams watched that
// last.
func (c *serverConn) sweep(now int64) {
	if due := c.due.Load(); due != 0 && now >= due {
		c.cut()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streamed && c.watched == nil {
		c.watched = make(chan struct{})
		go c.watch(c.watched)
	}
}

// stream marks that an answer is being streamed, so that it is noticed when the
// client goes away. The request's body must have been read.
func (c *serverConn) stream() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streamed = true
}

// watch ends the context when the client has gone. It gives up where another
// request comes first: that is served after the stream.
func (c *serverConn) watch(done chan struct{}) {
	defer close(done)
	if err := c.await(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.cancel()
	}
}

// unwatch ends the watcher of a stream that has ended, before the next request
// is read.
func (c *serverConn) unwatch() {
	c.mu.Lock()
	done := c.watched
	c.streamed, c.watched = false, nil
	c.mu.Unlock()
	if done == nil {
		return
	}
	_ = c.SetReadDeadline(time.Unix(1, 0))
	<-done
	_ = c.SetReadDeadline(time.Time{})
}
