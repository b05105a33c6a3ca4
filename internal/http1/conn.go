package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// maxHead bounds the head of an answer, in bytes.
	maxHead = 1 << 20
	// oneWrite is up to what length of a body head and body are joined, so that
	// they leave in one segment.
	oneWrite = 64 << 10
	// earlyTime is how long an answer is waited for after writing has failed.
	earlyTime = time.Second
)

var (
	errAnswerHead = errors.New("reading an answer: its header is too long")
	// errGone is an idle connection on which something has come: its end, an error,
	// or bytes that nobody has asked for. It is of no use.
	errGone = errors.New("the idle connection has ended")
)

// conn is one connection of a [Transport]. It belongs to one request at a time,
// or to the pool.
type conn struct {
	net.Conn
	addr   string
	br     *bufio.Reader // reads through conn.Read
	aborts func()        // abort, made once
	head   int           // what the head being read may still take; -1: no head
	most   time.Duration // how long it may be idle at most
	idle   time.Duration // how long it may be idle, by the last answer
	since  time.Time     // when it became idle
	known  knownAnswer   // that came last
	reused bool          // it has carried a request before
	keep   bool          // it can carry another one

	// Where the system lets a socket be worked without waiting, the look at whether the
	// connection still lives, the writing and the first reading are one trip through
	// the poller. What comes after the look wakes the trip, so that no read is spent
	// on finding out that the answer is not here yet.
	raw        syscall.RawConn              // nil: there is no such way
	below      syscall.RawConn              // of the connection beneath this one; nil: it is not known, or there is none
	look, step func(fd uintptr) (done bool) // looked and stepped, made once
	fd         int                          // that Read reads from without waiting; -1: it waits
	request    []byte
	written    int
	err        error // of looking or writing
}

// newConn wraps a connection.
func newConn(raw net.Conn, addr string, idle time.Duration) *conn {
	c := &conn{Conn: raw, addr: addr, fd: -1, head: -1, most: idle, idle: idle}
	c.br = bufio.NewReaderSize(c, 8<<10)
	c.aborts, c.look, c.step = c.abort, c.looked, c.stepped
	if c.raw = socketOf(raw); c.raw == nil {
		if over, ok := raw.(interface{ NetConn() net.Conn }); ok {
			c.below = socketOf(over.NetConn())
		}
	}
	return c
}

// socketOf returns a connection's socket, to be worked without waiting; nil: there is no such way.
func socketOf(c net.Conn) (raw syscall.RawConn) {
	if sc, ok := c.(syscall.Conn); ok && canTry {
		raw, _ = sc.SyscallConn()
	}
	return raw
}

// abort ends what reads or writes now.
func (c *conn) abort() { _ = c.SetDeadline(time.Unix(1, 0)) }

// Read reads from the connection, no more than a head may have while one is
// being read.
func (c *conn) Read(p []byte) (n int, err error) {
	switch {
	case c.head == 0:
		return 0, errAnswerHead
	case c.head > 0:
		p = p[:min(len(p), c.head)]
	}
	if c.fd >= 0 {
		n, err = readNow(c.fd, p)
	} else {
		n, err = c.Conn.Read(p)
	}
	if c.head > 0 {
		c.head -= n
	}
	return n, err
}

// exchange sends the request and reads the answer's head.
func (c *conn) exchange(out *outgoing) (*http.Response, error) {
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

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// send writes the request. The error is a notSent where no byte was written. It
// always looks whether an idle connection is alive: a server that has just closed
// it would make a request's outcome unknown, which is worth more than a system
// call.
func (c *conn) send(out *outgoing) error {
	buf := writeBuffers.Get().(*[]byte)
	defer writeBuffers.Put(buf)
	head := out.appendHead((*buf)[:0])
	var n int64
	var err error
	if out.length() <= oneWrite {
		for _, part := range out.body {
			head = append(head, part...)
		}
		var written int
		written, err = c.write(head)
		n = int64(written)
	} else if c.reused && !c.alive() {
		err = errGone
	} else {
		parts := append(net.Buffers{head}, out.body...)
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

// alive reports whether an idle connection can carry a request: nothing has come
// on it. Where that can't be seen, that connections are not idle for long has to do.
func (c *conn) alive() bool {
	socket := c.raw
	if socket == nil {
		socket = c.below
	}
	if socket == nil {
		return true
	}
	err := socket.Read(c.look)
	return err == nil && c.err == nil
}

func (c *conn) looked(fd uintptr) bool {
	var one [1]byte
	_, err := readNow(int(fd), one[:])
	c.err = nil
	if err != errNothing {
		c.err = errGone
	}
	return true
}

// write writes a request, and waits for the first bytes of what comes back. An
// error of that waiting is left to who reads the answer: it comes again.
func (c *conn) write(request []byte) (written int, err error) {
	if c.raw == nil {
		if c.reused && !c.alive() {
			return 0, errGone
		}
		return c.Conn.Write(request)
	}
	c.request, c.written, c.err = request, 0, nil
	waited := c.raw.Read(c.step)
	c.request = nil
	switch {
	case c.err != nil:
		return c.written, c.err
	case c.written == len(request):
		return c.written, nil
	case waited != nil:
		return c.written, waited
	}
	rest, err := c.Conn.Write(request[c.written:])
	return c.written + rest, err
}

// stepped writes when it is called first, and reads from then on. What came on a
// new connection before that wakes nobody any more: nothing has looked for it.
func (c *conn) stepped(fd uintptr) bool {
	if c.written == 0 {
		if c.reused && c.looked(fd) && c.err != nil {
			return true
		}
		if c.written, c.err = writeNow(int(fd), c.request); c.written < len(c.request) {
			return true
		}
		if c.reused {
			return false
		}
	}
	c.fd = int(fd)
	_, err := c.br.Peek(1)
	c.fd = -1
	return err != errNothing
}

// receive reads the head of the answer; interim ones (1xx) are skipped.
func (c *conn) receive(out *outgoing) (*http.Response, error) {
	for range 8 {
		resp, err := c.readHead(out)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, errors.New("the server closed the connection before it answered")
		case err != nil:
			return nil, err
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
func (c *conn) early(out *outgoing) *http.Response {
	_ = c.SetReadDeadline(time.Now().Add(earlyTime))
	if out.ctx.Err() != nil { // the deadline that abort has set is lost
		return nil
	}
	resp, err := c.receive(out)
	if err != nil {
		return nil
	}
	resp.Close = true
	return resp
}

// hint takes the Keep-Alive header's timeout, less a margin, as the time that
// the connection may be idle. It reports whether it may be kept at all.
func (c *conn) hint(h http.Header) bool {
	c.idle = c.most
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

// appendHead appends the request's whole head.
func (out *outgoing) appendHead(b []byte) []byte {
	b = append(b, out.head...)
	for _, f := range out.fields {
		b = appendLine(b, f.Name, f.Value)
	}
	if n := out.length(); n > 0 || out.req.Method == http.MethodPost {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), int64(n), 10), "\r\n"...)
	}
	return append(b, "\r\n"...)
}

// length is how long the body is, in bytes.
func (out *outgoing) length() (n int) {
	for _, part := range out.body {
		n += len(part)
	}
	return n
}

// knownAnswer is an answer that came before on a connection.
type knownAnswer struct {
	head knownHead
	resp *http.Response
}

// knownHead is the head of a message that was read before, apart from the value
// of its Content-Length: what comes next on a connection mostly differs in
// nothing else, and need not be parsed again.
type knownHead struct{ before, after []byte }

// maxKnown is up to what size a head is kept.
const maxKnown = 2 << 10

// newKnownHead keeps a head, which ends with its empty line, if it has exactly
// one Content-Length, of digits, and no Transfer-Encoding. It keeps the slice.
func newKnownHead(head []byte) (k knownHead, ok bool) {
	if len(head) > maxKnown {
		return k, false
	}
	for rest := head; len(rest) > 0; {
		line, after, _ := bytes.Cut(rest, []byte{'\n'})
		name, value, _ := bytes.Cut(line, []byte{':'})
		switch {
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			return k, false
		case !bytes.EqualFold(name, []byte("Content-Length")):
		case k.after != nil:
			return k, false
		default:
			at := len(head) - len(rest) + len(name) + 1 + len(value) - len(bytes.TrimLeft(value, " \t"))
			n, _ := digits(head[at:])
			k = knownHead{head[:at:at], head[at+n:]}
			if n == 0 || k.after[0] != '\r' {
				return k, false
			}
		}
		rest = after
	}
	return k, k.after != nil
}

// match reports whether b begins with the head, and gives its size there and the
// Content-Length.
func (k *knownHead) match(b []byte) (size int, length int64, ok bool) {
	if k.after == nil || !bytes.HasPrefix(b, k.before) {
		return 0, 0, false
	}
	b = b[len(k.before):]
	n, length := digits(b)
	if n == 0 || !bytes.HasPrefix(b[n:], k.after) {
		return 0, 0, false
	}
	return len(k.before) + n + len(k.after), length, true
}

// digits reads a number at the beginning of b; n is how many digits it has: 0
// where there is none, or where it is too long to be meant.
func digits(b []byte) (n int, value int64) {
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		value = 10*value + int64(b[n]-'0')
		if n++; n > 15 {
			return 0, 0
		}
	}
	return n, value
}

// readHead reads the head of an answer. One that differs from the last in its
// length alone is not parsed again.
func (c *conn) readHead(out *outgoing) (*http.Response, error) {
	if _, err := c.br.Peek(1); err != nil {
		return nil, err
	}
	buffered, _ := c.br.Peek(c.br.Buffered())
	if size, length, ok := c.known.head.match(buffered); ok && out.req.Method != http.MethodHead {
		_, _ = c.br.Discard(size)
		resp := *c.known.resp
		resp.Request, resp.ContentLength, resp.Body = out.req, length, http.NoBody
		if length > 0 {
			resp.Body = &sizedBody{c.br, length}
		}
		return &resp, nil
	}
	return c.parseHead(out, buffered)
}

// parseHead reads the head of an answer, and keeps it for the next one if it is
// all here: buffered.
func (c *conn) parseHead(out *outgoing, buffered []byte) (*http.Response, error) {
	var k knownHead
	var ok bool
	end := bytes.Index(buffered, []byte("\r\n\r\n"))
	if end >= 0 {
		k, ok = newKnownHead(bytes.Clone(buffered[:end+4]))
	}
	before := c.br.Buffered()
	resp, err := http.ReadResponse(c.br, out.req)
	if !ok || err != nil || before-c.br.Buffered() != end+4 {
		return resp, err
	}
	if resp.StatusCode == http.StatusOK && resp.ProtoAtLeast(1, 1) && !resp.Close && out.req.Method != http.MethodHead {
		kept := *resp
		kept.Body, kept.Request = nil, nil
		kept.Header = resp.Header.Clone()
		kept.Header.Del("Content-Length")
		c.known = knownAnswer{k, &kept}
	}
	return resp, nil
}

// sizedBody is a body of known length.
type sizedBody struct {
	br   *bufio.Reader
	left int64
}

// Read implements io.Reader. The end comes with the last bytes.
func (b *sizedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.br.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	switch {
	case b.left == 0:
		err = io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close does nothing.
func (*sizedBody) Close() error { return nil }
