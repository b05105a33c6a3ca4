package streamhttp

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxIdle is how long an idle connection is kept, unless the server's
// Keep-Alive hint says less. Servers close theirs after 5 s and more: a request
// written into a closing connection has an unknown outcome, so ours go first.
const maxIdle = 2 * time.Second

// maxIdleConns is how many idle connections are kept.
const maxIdleConns = 256

// dialTimeout bounds the making of a connection.
const dialTimeout = 10 * time.Second

// errTLS is a request for https.
var errTLS = errors.New("the lean transport speaks plain http only")

// Lean is an [http.RoundTripper] for plain HTTP/1.1 that works on the caller's
// goroutine: [http.Transport] hands every request to two more. It follows no
// redirect, asks for no compression and never sends a request twice, but where
// not one byte of it was written. When the request's context ends, its
// connection is closed. It is safe for concurrent use; its zero value is ready.
type Lean struct {
	_     apart
	mu    sync.Mutex  // guards idle and timer
	idle  []*leanConn // the last used last; of one server, mostly
	timer *time.Timer
	_     apart
}

// notSent marks an error before which no byte of the request was written.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

// NotSent reports whether err, returned by a transport of this package, came
// before any byte of the request was written.
func NotSent(err error) bool {
	_, ok := errors.AsType[notSent](err)
	return ok
}

// RoundTrip sends a request and returns the answer, whose header is shared with
// other answers and must not be changed. Its body must be read to
// the end or closed, by one goroutine. Of the request's own body only the bytes
// of a [Body] are sent in one write; others are read first.
func (l *Lean) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "http" {
		return nil, notSent{errTLS}
	}
	body, err := wholeBody(req)
	if err != nil {
		return nil, notSent{err}
	}
	head, err := requestHead(req)
	if err != nil {
		return nil, notSent{err}
	}
	return l.do(&outgoing{
		ctx: req.Context(), addr: hostPort(req.URL), method: req.Method,
		head: head, body: body, req: req,
	})
}

// outgoing is a request to be sent.
type outgoing struct {
	ctx    context.Context
	addr   string // of the server
	method string
	head   []byte  // the request's head, up to the length: see requestHead
	fields []Field // more of the head
	body   []byte
	req    *http.Request // what the answer belongs to; nil: nobody asks for that
}

// do is RoundTrip for a request whose head is made.
func (l *Lean) do(out *outgoing) (*http.Response, error) {
	for _, f := range out.fields {
		if err := CheckField(f.Name, f.Value); err != nil {
			return nil, notSent{err}
		}
	}
	for {
		conn, err := l.conn(out.ctx, out.addr)
		if err != nil {
			return nil, notSent{err}
		}
		resp, err := l.exchange(conn, out)
		if err == nil || !conn.reused || !NotSent(err) || out.ctx.Err() != nil {
			return resp, err
		}
	}
}

// exchange writes the request and reads the answer's head.
func (l *Lean) exchange(conn *leanConn, out *outgoing) (*http.Response, error) {
	b := &leanBody{lean: l, conn: conn, ctx: out.ctx}
	b.ending = holdBy(out.ctx, conn)
	resp, err := conn.converse(out)
	if err != nil {
		b.ending.drop()
		conn.Close()
		return nil, ended(out.ctx, err)
	}
	b.body = resp.Body
	conn.keep = !resp.Close && conn.hint(resp.Header)
	if resp.Body == http.NoBody {
		b.finish(true)
	}
	resp.Body = b
	return resp, nil
}

// converse sends the request and reads the answer's head.
func (c *leanConn) converse(out *outgoing) (*http.Response, error) {
	c.head = maxHead
	defer func() { c.head = -1 }()
	err := c.send(out)
	switch {
	case err == nil:
		return c.receive(out)
	case !NotSent(err):
		if resp := c.early(out); resp != nil {
			return resp, nil
		}
	}
	return nil, err
}

// ended makes an error that comes of the context's end say so.
func ended(ctx context.Context, err error) error {
	cause := ctx.Err()
	switch {
	case cause == nil:
		return err
	case NotSent(err):
		return notSent{cause}
	}
	return cause
}

// conn takes an idle connection, or makes one. Whether it is still alive is seen
// when the request is written.
func (l *Lean) conn(ctx context.Context, addr string) (*leanConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for c := l.take(addr); c != nil; c = l.take(addr) {
		if time.Since(c.since) < c.idle {
			c.reused = true
			return c, nil
		}
		c.Close()
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	raw, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return newLeanConn(raw, addr), nil
}

func (l *Lean) take(addr string) *leanConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range slices.Backward(l.idle) {
		if c.addr == addr {
			l.idle = slices.Delete(l.idle, i, i+1)
			return c
		}
	}
	return nil
}

// put keeps a connection for the next request, and sees to its end.
func (l *Lean) put(c *leanConn) {
	c.since = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.idle) >= maxIdleConns {
		c.Close()
		return
	}
	l.idle = append(l.idle, c)
	if l.timer == nil {
		l.timer = time.AfterFunc(maxIdle/4, l.sweep)
	}
}

// sweep closes the connections that were idle for too long.
func (l *Lean) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	l.idle = slices.DeleteFunc(l.idle, func(c *leanConn) bool {
		old := time.Since(c.since) >= c.idle
		if old {
			c.Close()
		}
		return old
	})
	if len(l.idle) > 0 {
		l.timer = time.AfterFunc(maxIdle/4, l.sweep)
	}
}

// CloseIdleConnections closes the connections that carry no request.
func (l *Lean) CloseIdleConnections() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	for _, c := range l.idle {
		c.Close()
	}
	l.idle = nil
}

// newLeanConn wraps a connection.
func newLeanConn(raw net.Conn, addr string) *leanConn {
	c := &leanConn{Conn: raw, addr: addr, fd: -1, head: -1, idle: maxIdle}
	c.br = bufio.NewReaderSize(c, 8<<10)
	c.turn.init(c)
	return c
}
