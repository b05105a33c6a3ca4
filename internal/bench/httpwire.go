package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxHTTPMessage bounds what an httpReader buffers of one message.
const maxHTTPMessage = 8 << 20

var (
	headEnd = []byte("\r\n\r\n")
	lineEnd = []byte("\r\n")
)

// httpMessage is one HTTP/1.1 request or answer. Its slices stay valid until
// the reader's next call.
type httpMessage struct {
	start   []byte // the start line
	session string // Mcp-Session-Id, "" if absent
	body    []byte
	close   bool // the sender will close the connection
	length  int  // Content-Length; -1 if absent
	chunked bool
}

// status is the code of an answer, 0 if the start line holds none.
func (m *httpMessage) status() int {
	if len(m.start) < len("HTTP/1.1 200") {
		return 0
	}
	n, _ := strconv.Atoi(string(m.start[9:12]))
	return n
}

// httpReader reads HTTP/1.1 messages with keep-alive from one connection,
// knowing no more of the format than a benchmark needs.
type httpReader struct {
	src     io.Reader
	buf     []byte
	r, w    int
	message httpMessage
	chunks  []byte
}

func newHTTPReader(src io.Reader) *httpReader {
	return &httpReader{src: src, buf: make([]byte, 4096)}
}

// next reads one whole message, its body joined if it came in chunks.
func (h *httpReader) next() (*httpMessage, error) {
	m, err := h.head()
	if err != nil {
		return nil, err
	}
	switch {
	case m.chunked:
		m.body, err = h.readChunks()
	case m.length > 0:
		m.body, err = h.take(m.length)
	default:
		m.body = nil
	}
	return m, err
}

// head reads up to the empty line; the body stays unread.
func (h *httpReader) head() (*httpMessage, error) {
	scanned := 0
	for {
		if i := bytes.Index(h.buf[h.r+scanned:h.w], headEnd); i >= 0 {
			head := h.buf[h.r : h.r+scanned+i+len(lineEnd)]
			h.r += len(head) + len(lineEnd)
			return &h.message, h.message.parse(head)
		}
		scanned = max(0, h.w-h.r-len(headEnd))
		if err := h.fill(); err != nil {
			return nil, err
		}
	}
}

func (m *httpMessage) parse(head []byte) error {
	end := bytes.Index(head, lineEnd)
	*m = httpMessage{start: append(m.start[:0], head[:end]...), length: -1}
	for head = head[end+2:]; len(head) > 0; head = head[end+2:] {
		end = bytes.Index(head, lineEnd)
		if err := m.field(head[:end]); err != nil {
			return err
		}
	}
	return nil
}

func (m *httpMessage) field(line []byte) (err error) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimSpace(value)
	switch {
	case bytes.EqualFold(name, []byte("content-length")):
		if m.length, err = strconv.Atoi(string(value)); err != nil || m.length < 0 || m.length > maxHTTPMessage {
			return fmt.Errorf("reading HTTP: Content-Length %q", value)
		}
	case bytes.EqualFold(name, []byte("transfer-encoding")):
		m.chunked = bytes.EqualFold(value, []byte("chunked"))
	case bytes.EqualFold(name, []byte("connection")):
		m.close = bytes.EqualFold(value, []byte("close"))
	case bytes.EqualFold(name, []byte("mcp-session-id")):
		m.session = string(value)
	}
	return nil
}

// readChunks joins the chunks of a body; trailers are read and dropped.
func (h *httpReader) readChunks() ([]byte, error) {
	h.chunks = h.chunks[:0]
	for {
		line, err := h.line()
		if err != nil {
			return nil, err
		}
		size, err := strconv.ParseUint(string(line), 16, 31)
		if err != nil || len(h.chunks)+int(size) > maxHTTPMessage {
			return nil, fmt.Errorf("reading HTTP: chunk size %q", line)
		}
		if size == 0 {
			return h.chunks, h.dropTrailers()
		}
		chunk, err := h.take(int(size) + 2)
		if err != nil {
			return nil, err
		}
		h.chunks = append(h.chunks, chunk[:size]...)
	}
}

func (h *httpReader) dropTrailers() error {
	for {
		line, err := h.line()
		if err != nil || len(line) == 0 {
			return err
		}
	}
}

// line reads up to the next line end, which is not part of the result.
func (h *httpReader) line() ([]byte, error) {
	for {
		if i := bytes.Index(h.buf[h.r:h.w], lineEnd); i >= 0 {
			line := h.buf[h.r : h.r+i]
			h.r += i + len(lineEnd)
			return line, nil
		}
		if err := h.fill(); err != nil {
			return nil, err
		}
	}
}

// take reads n bytes.
func (h *httpReader) take(n int) ([]byte, error) {
	for h.w-h.r < n {
		if err := h.fill(); err != nil {
			return nil, err
		}
	}
	h.r += n
	return h.buf[h.r-n : h.r], nil
}

// fill reads once, after making room. It returns io.EOF only between messages.
func (h *httpReader) fill() error {
	if h.r == h.w {
		h.r, h.w = 0, 0
	}
	if h.w == len(h.buf) {
		if h.w-h.r > maxHTTPMessage {
			return errors.New("reading HTTP: message too long")
		}
		grown := h.buf
		if h.r == 0 {
			grown = make([]byte, 2*len(h.buf))
		}
		h.w = copy(grown, h.buf[h.r:h.w])
		h.r, h.buf = 0, grown
	}
	n, err := h.src.Read(h.buf[h.w:])
	h.w += n
	if n > 0 {
		return nil
	}
	if err == io.EOF && h.w > h.r {
		return io.ErrUnexpectedEOF
	}
	return err
}
