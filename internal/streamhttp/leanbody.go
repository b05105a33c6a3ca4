package streamhttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

var (
	errHead    = errors.New("reading a request: its header does not end where it seems to")
	errTrailer = errors.New("reading a request: the trailer is malformed or too large")
)

// incoming is the body of a request, as far as it was not read.
type incoming struct {
	conn      *serverConn
	left      int64     // bytes to come; -1: the end is not known
	chunks    io.Reader // of a chunked body
	continues bool      // the client waits for 100 Continue
	failed    bool
}

func (b *incoming) begin(c *serverConn, length int64) io.ReadCloser {
	b.conn, b.left = c, length
	c.limit(0)
	if length == 0 {
		return http.NoBody
	}
	if length < 0 {
		b.chunks = httputil.NewChunkedReader(c.br)
	}
	if length < 0 || length > int64(c.br.Buffered()) { // it is still to come
		_ = c.resp.SetReadDeadline(time.Now().Add(c.srv.HeaderTimeout))
	}
	return b
}

// Read implements io.Reader.
func (b *incoming) Read(p []byte) (n int, err error) {
	if b.continues {
		b.continues = false
		b.failed = !b.conn.resp.goOn()
	}
	switch {
	case b.left == 0:
		return 0, io.EOF
	case b.failed:
		return 0, io.ErrUnexpectedEOF
	case b.left < 0:
		n, err = b.chunk(p)
	default:
		n, err = b.conn.br.Read(p[:min(int64(len(p)), b.left)])
		b.left -= int64(n)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
	}
	b.failed = err != nil && err != io.EOF
	return n, err
}

// Close does nothing: what the handler leaves is the connection's.
func (b *incoming) Close() error { return nil }

// chunk reads of a chunked body.
func (b *incoming) chunk(p []byte) (int, error) {
	n, err := b.chunks.Read(p)
	if err != io.EOF {
		return n, err
	}
	if err = b.trailer(); err != nil {
		return n, err
	}
	b.left = 0
	return n, io.EOF
}

// maxTrailer is how large what follows the last chunk may be.
const maxTrailer = 4 << 10

// trailer drops what follows the last chunk, up to an empty line.
func (b *incoming) trailer() error {
	for size := 0; size <= maxTrailer; {
		line, err := b.conn.br.ReadSlice('\n')
		switch {
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case string(line) == "\r\n":
			return nil
		case !isField(line):
			return errTrailer
		}
		size += len(line)
	}
	return errTrailer
}

// isField reports whether a line of a trailer is one.
func isField(line []byte) bool {
	name, _, ok := bytes.Cut(line, []byte{':'})
	return ok && wire.IsToken(name) && bytes.HasSuffix(line, []byte("\r\n")) && printable(line)
}

// read reports whether all of the body was read.
func (b *incoming) read() bool { return b.left == 0 }

// maxDrain is up to what length a body is read on after the answer, so that the
// connection can carry another request.
const maxDrain = 64 << 10

// drainable reports whether what is left may be read to its end.
func (b *incoming) drainable() bool {
	return b.left >= 0 && b.left <= maxDrain && !b.failed && !b.continues
}

// drain reads what is left, and reports whether it has come.
func (b *incoming) drain() bool {
	n, err := b.conn.br.Discard(int(b.left))
	b.left -= int64(n)
	return err == nil
}
