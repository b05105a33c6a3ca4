package streamhttp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
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

// wholeBody returns the whole body of a request.
func wholeBody(req *http.Request) ([]byte, error) {
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
	br     *bufio.Reader // reads through leanConn.Read
	turn   turn
	fd     int           // that Read reads from without waiting; -1: it waits
	head   int           // what the head being read may still take; -1: no head
	idle   time.Duration // how long it may be idle
	since  time.Time     // when it became idle
	known  knownAnswer
	reused bool // it has carried a request before
	keep   bool // it can carry another one
}

// End ends what reads or writes now. It implements wire.Ender.
func (c *leanConn) End() { _ = c.SetDeadline(time.Unix(1, 0)) }

// maxHead bounds the head of an answer, in bytes.
const maxHead = 1 << 20

var errAnswerHead = errors.New("reading an answer: its header is too long")

// Read reads from the connection, no more than a head may have while one is
// being read.
func (c *leanConn) Read(p []byte) (int, error) {
	if c.head < 0 {
		return c.read(p)
	}
	if c.head == 0 {
		return 0, errAnswerHead
	}
	n, err := c.read(p[:min(len(p), c.head)])
	c.head -= n
	return n, err
}

func (c *leanConn) read(p []byte) (int, error) {
	if c.fd >= 0 {
		return readNow(c.fd, p)
	}
	return c.Conn.Read(p)
}

// oneWrite is up to what length of a body head and body are joined, so that
// they leave in one segment.
const oneWrite = 64 << 10

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// send writes the request. The error is a notSent where no byte was written. It
// always looks whether an idle connection is alive: a server that has just closed
// it would make a request's outcome unknown, which is worth more than a system
// call.
func (c *leanConn) send(out *outgoing) error {
	buf := writeBuffers.Get().(*[]byte)
	defer writeBuffers.Put(buf)
	body := out.body
	head := appendFields(append((*buf)[:0], out.head...), out.fields)
	head = appendLength(head, out.method, len(body))
	var n int64
	var err error
	if len(body) <= oneWrite {
		head = append(head, body...)
		var written int
		written, err = c.turn.ask(head)
		n = int64(written)
	} else if c.reused && !c.turn.alive() {
		err = errGone
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

// receive reads the head of the answer; interim ones (1xx) are skipped.
func (c *leanConn) receive(out *outgoing) (*http.Response, error) {
	for range 8 {
		resp, err := c.readHead(out)
		if err != nil {
			return nil, lostConn(err)
		}
		switch {
		case resp.StatusCode < 100: // "099" and "+99" pass http.ReadResponse
			return nil, fmt.Errorf("reading an answer: malformed HTTP status code %q", resp.Status)
		case resp.StatusCode >= 200:
			return resp, nil
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	return nil, errors.New("reading an answer: unexpected HTTP status 1xx")
}

// early reads an answer that came before the request was written to its end, as
// one that refuses a long body does; nil: there is none.
func (c *leanConn) early(out *outgoing) *http.Response {
	_ = c.SetReadDeadline(time.Now().Add(earlyTime))
	if out.ctx.Err() != nil { // the deadline that End has set is lost
		return nil
	}
	resp, err := c.receive(out)
	if err != nil {
		return nil
	}
	resp.Close = true
	return resp
}

// earlyTime is how long an answer is waited for after writing has failed.
const earlyTime = time.Second

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
	values := h["Keep-Alive"]
	if len(values) == 0 {
		return true
	}
	for part := range strings.SplitSeq(values[0], ",") {
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
