package streamhttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Body is a request body of which a [Lean] takes the bytes as they are.
type Body struct {
	bytes.Reader
	raw []byte
}

// NewBody returns a body of raw.
func NewBody(raw []byte) *Body {
	b := &Body{raw: raw}
	b.Reset(raw)
	return b
}

// Close does nothing.
func (b *Body) Close() error { return nil }

// bodyBytes returns the whole body of a request.
func bodyBytes(req *http.Request) ([]byte, error) {
	switch b := req.Body.(type) {
	case nil:
		return nil, nil
	case *Body:
		return b.raw, nil
	}
	defer req.Body.Close()
	return io.ReadAll(req.Body)
}

// hostPort is the address of a URL's host.
func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

// leanConn is one connection of a [Lean]. It belongs to one request at a time,
// or to the pool.
type leanConn struct {
	net.Conn
	addr   string
	br     *bufio.Reader
	idle   time.Duration // how long it may be idle
	since  time.Time     // when it became idle
	reused bool          // it has carried a request before
	keep   bool          // it can carry another one
	expire func()        // ends what reads or writes now
	alive  func() bool   // nothing has come while it was idle, neither bytes nor the end
}

// oneWrite is up to what length of a body head and body are joined, so that
// they leave in one segment.
const oneWrite = 64 << 10

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// send writes the request. The error is a notSent where no byte was written.
func (c *leanConn) send(req *http.Request, body []byte) error {
	buf := writeBuffers.Get().(*[]byte)
	defer writeBuffers.Put(buf)
	head := appendHead((*buf)[:0], req, len(body))
	var n int64
	var err error
	if len(body) <= oneWrite {
		head = append(head, body...)
		var written int
		written, err = c.Write(head)
		n = int64(written)
	} else {
		parts := net.Buffers{head, body}
		n, err = parts.WriteTo(c.Conn)
	}
	if cap(head) <= 2*oneWrite {
		*buf = head[:0]
	}
	if err != nil && n == 0 {
		return notSent{err}
	}
	return err
}

// appendHead appends the request line and the header.
func appendHead(b []byte, req *http.Request, length int) []byte {
	b = append(b, req.Method...)
	b = append(b, ' ')
	b = append(b, req.URL.RequestURI()...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, req.URL.Host...)
	b = append(b, "\r\n"...)
	for name, values := range req.Header {
		for _, value := range values {
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, value...)
			b = append(b, "\r\n"...)
		}
	}
	if length > 0 || req.Method == http.MethodPost {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(length), 10)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...)
}

// receive reads the head of the answer; interim ones (1xx) are skipped.
func (c *leanConn) receive(req *http.Request) (*http.Response, error) {
	for range 8 {
		resp, err := http.ReadResponse(c.br, req)
		if err != nil {
			return nil, lostConn(err)
		}
		if resp.StatusCode >= 200 {
			return resp, nil
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	return nil, errors.New("reading an answer: unexpected HTTP status 1xx")
}

// lostConn words the errors of a connection that ended.
func lostConn(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the upstream closed the connection before it answered")
	}
	return err
}

// hint takes the Keep-Alive header's timeout, less a margin, as the time that
// the connection may be idle. It reports whether it may be kept at all.
func (c *leanConn) hint(h http.Header) bool {
	c.idle = maxIdle
	for part := range strings.SplitSeq(h.Get("Keep-Alive"), ",") {
		value, ok := strings.CutPrefix(strings.TrimSpace(part), "timeout=")
		if !ok {
			continue
		}
		if s, err := strconv.Atoi(value); err == nil && s >= 0 {
			c.idle = min(c.idle, time.Duration(s)*time.Second/2)
		}
	}
	return c.idle > 0
}

// leanBody is the body of an answer. At its end the connection goes back to
// the pool.
type leanBody struct {
	lean *Lean
	conn *leanConn
	body io.ReadCloser
	stop func() bool
	ctx  context.Context
	done bool
}

func (b *leanBody) Read(p []byte) (int, error) {
	if b.done {
		return 0, io.EOF
	}
	n, err := b.body.Read(p)
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
func (b *leanBody) Close() error {
	if !b.done {
		b.finish(false)
	}
	return nil
}

// atEnd reports whether the rest of a chunked body is here already and empty,
// and reads it then.
func (b *leanBody) atEnd() bool {
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

func (b *leanBody) finish(whole bool) {
	b.done = true
	if b.stop() && whole && b.conn.keep && b.conn.br.Buffered() == 0 {
		b.lean.put(b.conn)
		return
	}
	b.conn.Close()
}
