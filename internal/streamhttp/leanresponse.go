package streamhttp

import (
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// leanResponse is the answer to a request of a [LeanServer]'s connection. What is
// small leaves in one write, head and body together. It is an
// [http.ResponseWriter] with the methods of [http.ResponseController] for flushing
// and deadlines.
type leanResponse struct {
	conn   *serverConn
	req    *leanRequest
	header http.Header
	status int  // 0: not set
	begun  bool // the head is in out or was written
	close  bool // the connection ends with this answer
	empty  bool // there is no body: 204, 304
	mute   bool // it is not to be written: HEAD

	chunked  bool
	declared int64   // length of the body; -1: not declared
	written  int64   // of the body, by the handler
	out      *[]byte // to be written; before the head only the body; nil: nothing
	err      error   // of a write
}

// What is held back before it is written.
const (
	maxHeld  = 4 << 10  // body whose length is not declared, in the hope that it ends
	maxWrite = 64 << 10 // anything else
)

func (r *leanResponse) init(c *serverConn) {
	r.conn, r.header = c, make(http.Header)
}

func (r *leanResponse) begin(req *leanRequest) {
	conn, header := r.conn, r.header
	clear(header)
	*r = leanResponse{}
	r.conn, r.req, r.header, r.declared, r.close = conn, req, header, -1, req.Close
}

// Header implements http.ResponseWriter.
func (r *leanResponse) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *leanResponse) WriteHeader(status int) {
	if r.status != 0 || status < 200 && status >= 100 {
		return
	}
	if status < 100 || status > 999 {
		panic("streamhttp: invalid status " + strconv.Itoa(status))
	}
	r.status = status
	r.mute = r.req.Method == http.MethodHead
	r.empty = status == http.StatusNoContent || status == http.StatusNotModified
	if v := r.header["Content-Length"]; len(v) > 0 {
		if n, err := strconv.ParseUint(v[0], 10, 62); err == nil && len(v) == 1 {
			r.declared = int64(n)
		}
	}
}

// Write implements http.ResponseWriter.
func (r *leanResponse) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	switch {
	case r.err != nil:
		return 0, r.err
	case r.empty:
		return 0, http.ErrBodyNotAllowed
	case r.declared >= 0 && r.written+int64(len(p)) > r.declared:
		return 0, http.ErrContentLength
	}
	r.written += int64(len(p))
	if r.mute {
		return len(p), nil
	}
	if !r.begun && r.declared < 0 && len(r.held())+len(p) <= maxHeld {
		r.hold(p)
		return len(p), nil
	}
	r.start(false)
	return len(p), r.add(p)
}

// held is what waits to be written.
func (r *leanResponse) held() []byte {
	if r.out == nil {
		return nil
	}
	return *r.out
}

// buffer is where what is to be written is held.
func (r *leanResponse) buffer() *[]byte {
	if r.out == nil {
		r.out = takeBuffer()
	}
	return r.out
}

func (r *leanResponse) hold(p []byte) {
	b := r.buffer()
	*b = append(*b, p...)
}

func (r *leanResponse) holdText(text string) {
	b := r.buffer()
	*b = append(*b, text...)
}

// add adds a piece of the body behind the head, and writes what is large.
func (r *leanResponse) add(p []byte) error {
	if r.chunked && len(p) > 0 {
		b := r.buffer()
		*b = append(strconv.AppendInt(*b, int64(len(p)), 16), "\r\n"...)
	}
	if len(r.held())+len(p) <= maxWrite {
		r.hold(p)
	} else {
		r.flush(p)
	}
	if r.chunked && len(p) > 0 {
		r.holdText("\r\n")
	}
	return r.err
}

// start puts the head before what is held. whole says that this is all of the
// body.
func (r *leanResponse) start(whole bool) {
	if r.begun {
		return
	}
	r.begun = true
	body := r.out
	r.out = takeBuffer()
	*r.out = r.appendHead(*r.out, whole)
	if body != nil {
		_ = r.add(*body)
		dropBuffer(body)
	}
}

// appendHead appends the status line and the header, and decides how the body
// ends.
func (r *leanResponse) appendHead(b []byte, whole bool) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(r.status), 10)
	b = append(append(append(b, ' '), http.StatusText(r.status)...), "\r\n"...)
	r.close = r.close || r.conn.srv.retiring.Load() || !r.req.body.drainable() || hasClose(r.header["Connection"])
	b = r.appendFields(b)
	switch {
	case r.empty:
	case r.declared >= 0:
		b = appendNumber(b, "Content-Length", r.declared)
	case whole:
		b = appendNumber(b, "Content-Length", r.written)
	case r.mute:
	case r.req.ProtoAtLeast(1, 1):
		r.chunked = true
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	default:
		r.close = true // the end of the connection is the end of the body
	}
	if r.close {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}

// appendFields appends the handler's header, in order, and the date.
func (r *leanResponse) appendFields(b []byte) []byte {
	var few [16]string
	names := few[:0]
	for name := range r.header {
		names = append(names, name)
	}
	if len(names) > 1 {
		slices.Sort(names)
	}
	for _, name := range names {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Connection":
			continue
		}
		for _, value := range r.header[name] {
			b = appendField(b, name, value)
		}
	}
	if len(r.header["Date"]) == 0 {
		b = appendField(b, "Date", *r.conn.srv.date.Load())
	}
	return b
}

// appendField appends a header line, of which line ends become spaces. A name
// that is none is left out.
func appendField(b []byte, name, value string) []byte {
	if !wire.IsToken(name) {
		return b
	}
	b = append(append(b, name...), ": "...)
	from := len(b)
	b = append(b, value...)
	for i := from; i < len(b); i++ {
		if b[i] == '\r' || b[i] == '\n' {
			b[i] = ' '
		}
	}
	return append(b, "\r\n"...)
}

func hasClose(values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, "close") })
}

// Flush implements http.Flusher.
func (r *leanResponse) Flush() { _ = r.FlushError() }

// FlushError writes what is held, and the head before it. The answer is a stream
// then: its client is watched.
func (r *leanResponse) FlushError() error {
	r.WriteHeader(http.StatusOK)
	r.start(false)
	r.flush(nil)
	if r.req.body.read() {
		r.conn.stream()
	}
	return r.err
}

// Watch has the connection watched from now on, as while an answer is streamed.
func (r *leanResponse) Watch() {
	if r.req.body.read() {
		r.conn.stream()
	}
}

// flush writes what is held and p behind it, and gives the buffer up.
func (r *leanResponse) flush(p []byte) {
	held := r.held()
	if r.err == nil && len(held)+len(p) > 0 {
		r.err = r.conn.write(held, p)
	}
	if r.out != nil {
		dropBuffer(r.out)
		r.out = nil
	}
}

// finish ends the answer, and reports whether all of it was written.
func (r *leanResponse) finish() bool {
	r.WriteHeader(http.StatusOK)
	r.start(true)
	if r.chunked {
		r.holdText("0\r\n\r\n")
	}
	r.flush(nil)
	r.req.body.continues = false
	return r.err == nil && (r.mute || r.empty || r.declared < 0 || r.written == r.declared)
}

// goOn tells the client to send the body, unless it was answered already.
func (r *leanResponse) goOn() bool {
	return !r.begun && r.conn.write([]byte("HTTP/1.1 100 Continue\r\n\r\n"), nil) == nil
}

// write writes two pieces, in one go if there is only one.
func (c *serverConn) write(a, b []byte) (err error) {
	if !c.writeLimit.Load() {
		c.limit(c.srv.WriteTimeout)
		defer c.limit(0)
	}
	if len(b) == 0 {
		_, err = c.Write(a)
		return err
	}
	parts := net.Buffers{a, b}
	_, err = parts.WriteTo(c.Conn)
	return err
}

// SetReadDeadline limits the reading of the request's body; see [http.ResponseController].
func (r *leanResponse) SetReadDeadline(t time.Time) error {
	if t.IsZero() && !r.conn.readLimit.Load() {
		return nil
	}
	r.conn.readLimit.Store(!t.IsZero())
	return r.conn.SetReadDeadline(t)
}

// SetWriteDeadline is the same for the writing of the answer.
func (r *leanResponse) SetWriteDeadline(t time.Time) error {
	if t.IsZero() && !r.conn.writeLimit.Load() {
		return nil
	}
	r.conn.writeLimit.Store(!t.IsZero())
	return r.conn.SetWriteDeadline(t)
}

// EnableFullDuplex does nothing: a body can be read after the answer has begun.
func (r *leanResponse) EnableFullDuplex() error { return nil }

func takeBuffer() *[]byte { return writeBuffers.Get().(*[]byte) }

func dropBuffer(b *[]byte) {
	if cap(*b) <= 2*maxWrite {
		*b = (*b)[:0]
		writeBuffers.Put(b)
	}
}
