// Package http1 is a client of HTTP/1.1: a transport that works on the caller's goroutine, for plain http and for
// connections that its user makes, and net/http's for everything else. Both tell whether anything was sent of a request
// that failed.
package http1

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// defaultIdle is how long an idle connection is kept where nothing says more. Servers close theirs after 5 s and more: a request written into a closing connection
	// has an unknown outcome, so ours go first.
	defaultIdle = 2 * time.Second
	// maxIdleConns is how many idle connections are kept.
	maxIdleConns = 256
	// dialTimeout bounds the making of a connection.
	dialTimeout = 10 * time.Second
)

// RoundTripper is what carries the requests of clients.
type RoundTripper interface {
	http.RoundTripper
	CloseIdleConnections()
}

// New returns what carries requests to a server: a [Transport] for plain http, and
// [http.Transport], HTTP/2 included, for https and where the environment
// (HTTP_PROXY and its like) names a proxy for that URL.
func New(u *url.URL) RoundTripper {
	if u.Scheme == "http" {
		if via, err := http.ProxyFromEnvironment(&http.Request{URL: u}); via == nil && err == nil {
			return new(Transport)
		}
	}
	return NewStandard()
}

// standard is net/http's transport, which tells whether anything was sent.
type standard struct{ *http.Transport }

// NewStandard returns net/http's transport.
func NewStandard() RoundTripper {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return standard{&http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        maxIdleConns,
		MaxIdleConnsPerHost: maxIdleConns,
		IdleConnTimeout:     defaultIdle,
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  true,
	}}
}

// RoundTrip sends a request. That no connection was got for it is the only
// certain sign that nothing was sent. A POST is not repeated by net/http unless
// that is as certain: it has no idempotency key.
func (t standard) RoundTrip(req *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	resp, err := t.Transport.RoundTrip(req.WithContext(ctx))
	if err != nil && !connected.Load() {
		return nil, notSent{err}
	}
	return resp, err
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

// Transport is an [http.RoundTripper] for plain HTTP/1.1 that works on the caller's
// goroutine: [http.Transport] hands every request to two more. It follows no
// redirect, asks for no compression and never sends a request twice, but where
// not one byte of it was written. When the request's context ends, its
// connection is closed. It is safe for concurrent use; its zero value is ready.
type Transport struct {
	// Dial makes a connection to a server, "host:port"; nil: one of TCP. Where writing to it fails it returns 0 only if
	// surely nothing was sent. If it has NetConn, as that of TLS has, what that returns shows whether it still lives.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// IdleTime is how long an idle connection is kept, unless the server's Keep-Alive hint says less; 0: 2 s.
	IdleTime time.Duration

	_     [64]byte    // what every request writes lies on no cache line with what others read
	mu    sync.Mutex  // guards idle and timer
	idle  []*conn     // the last used last; of one server, mostly
	timer *time.Timer // of sweep; nil: it is not due
	_     [64]byte
}

var errTLS = errors.New("this transport speaks plain http only")

// RoundTrip sends a request and returns the answer, whose header is shared with
// other answers and must not be changed. Its body must be read to
// the end or closed, by one goroutine. The request's own body is read first.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var raw []byte
	if req.Body != nil {
		defer req.Body.Close()
		var err error
		if raw, err = io.ReadAll(req.Body); err != nil {
			return nil, notSent{err}
		}
	}
	p, err := Prepare(req)
	if err != nil {
		return nil, notSent{err}
	}
	return t.Send(req.Context(), p, nil, raw)
}

// outgoing is a request to be sent.
type outgoing struct {
	*Prepared
	ctx    context.Context
	fields []Field // more of its header
	body   net.Buffers
}

// Send sends a prepared request, with more lines in its header, and a body that is all these parts. It returns what
// [Transport.RoundTrip] does, and reads nothing of the body from then on.
func (t *Transport) Send(ctx context.Context, p *Prepared, fields []Field, body ...[]byte) (*http.Response, error) {
	for _, f := range fields {
		if err := CheckField(f.Name, f.Value); err != nil {
			return nil, notSent{err}
		}
	}
	out := &outgoing{p, ctx, fields, body}
	for {
		c, err := t.conn(ctx, p.addr)
		if err != nil {
			return nil, notSent{err}
		}
		resp, err := t.exchange(c, out)
		if err == nil || !c.reused || !NotSent(err) || ctx.Err() != nil {
			return resp, err
		}
	}
}

// exchange writes the request and reads the answer's head.
func (t *Transport) exchange(c *conn, out *outgoing) (*http.Response, error) {
	b := &body{transport: t, conn: c, ctx: out.ctx, stop: afterFunc(out.ctx, c.aborts)}
	resp, err := c.exchange(out)
	if err != nil {
		b.stop()
		c.Close()
		return nil, ended(out.ctx, err)
	}
	b.rest = resp.Body
	c.keep = !resp.Close && c.hint(resp.Header)
	if resp.Body == http.NoBody {
		b.finish(true)
	}
	resp.Body = b
	return resp, nil
}

// afterFunc is [context.AfterFunc], which makes a channel, and a goroutine to call f on, even for a context that
// has a way of its own.
func afterFunc(ctx context.Context, f func()) (stop func() bool) {
	if own, ok := ctx.(interface{ AfterFunc(func()) func() bool }); ok {
		return own.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
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
func (t *Transport) conn(ctx context.Context, addr string) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for c := t.take(addr); c != nil; c = t.take(addr) {
		if time.Since(c.since) < c.idle {
			c.reused = true
			return c, nil
		}
		c.Close()
	}
	dial := t.Dial
	if dial == nil {
		dial = dialTCP
	}
	raw, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return newConn(raw, addr, t.keeps()), nil
}

// keeps is how long an idle connection is kept at most.
func (t *Transport) keeps() time.Duration { return cmp.Or(t.IdleTime, defaultIdle) }

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	return dialer.DialContext(ctx, "tcp", addr)
}

func (t *Transport) take(addr string) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range slices.Backward(t.idle) {
		if c.addr == addr {
			t.idle = slices.Delete(t.idle, i, i+1)
			return c
		}
	}
	return nil
}

// put keeps a connection for the next request, and sees to its end.
func (t *Transport) put(c *conn) {
	c.since = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idle) >= maxIdleConns {
		c.Close()
		return
	}
	t.idle = append(t.idle, c)
	if t.timer == nil {
		t.timer = time.AfterFunc(t.keeps()/4, t.sweep)
	}
}

// sweep closes the connections that were idle for too long.
func (t *Transport) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = nil
	t.idle = slices.DeleteFunc(t.idle, func(c *conn) bool {
		old := time.Since(c.since) >= c.idle
		if old {
			c.Close()
		}
		return old
	})
	if len(t.idle) > 0 {
		t.timer = time.AfterFunc(t.keeps()/4, t.sweep)
	}
}

// CloseIdleConnections closes the connections that carry no request.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	for _, c := range t.idle {
		c.Close()
	}
	t.idle = nil
}

// body is the body of an answer. At its end the connection goes back to the pool.
type body struct {
	transport *Transport
	conn      *conn
	rest      io.Reader
	ctx       context.Context
	stop      func() bool // has the context's end be none of the connection's
	done      bool
}

func (b *body) Read(p []byte) (int, error) {
	if b.done {
		return 0, io.EOF
	}
	n, err := b.rest.Read(p)
	if err == nil {
		return n, nil
	}
	b.finish(err == io.EOF)
	if err != io.EOF {
		err = ended(b.ctx, err)
	}
	return n, err
}

// Close ends the connection unless the body was read to its end.
func (b *body) Close() error {
	if !b.done {
		b.finish(false)
	}
	return nil
}

// AtEnd reports whether the rest of a chunked body is here already and empty,
// and reads it then.
func (b *body) AtEnd() bool {
	if b.done {
		return true
	}
	const last = "0\r\n\r\n"
	if b.conn.br.Buffered() < len(last) {
		return false
	}
	if rest, _ := b.conn.br.Peek(len(last)); string(rest) != last {
		return false
	}
	n, err := b.Read(make([]byte, 1))
	return n == 0 && err == io.EOF
}

func (b *body) finish(whole bool) {
	b.done = true
	if b.stop() && whole && b.conn.keep && b.conn.br.Buffered() == 0 {
		b.transport.put(b.conn)
		return
	}
	b.conn.Close()
}
