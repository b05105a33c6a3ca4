package streamhttp

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"
)

// said is a connection on which a client has said all it will.
type said struct{ bytes.Reader }

func (*said) Write(p []byte) (int, error)      { return len(p), nil }
func (*said) Close() error                     { return nil }
func (*said) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*said) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*said) SetDeadline(time.Time) error      { return nil }
func (*said) SetReadDeadline(time.Time) error  { return nil }
func (*said) SetWriteDeadline(time.Time) error { return nil }

// seenRequest is what one of two readers made of a request.
type seenRequest struct{ method, uri, host, body string }

func seen(r *http.Request) (seenRequest, bool) {
	body, err := io.ReadAll(r.Body)
	return seenRequest{r.Method, r.RequestURI, r.Host, string(body)}, err == nil
}

// readLean reads requests as a LeanServer does.
func readLean(raw []byte) (all []seenRequest) {
	s := &LeanServer{}
	s.fill()
	conn := &said{}
	conn.Reset(raw)
	c := newServerConn(s, conn)
	defer c.cancel()
	for c.await() == nil {
		req, _ := c.readRequest()
		if req == nil {
			return all
		}
		c.resp.begin(req)
		r, ok := seen(&req.Request)
		if !ok {
			return all
		}
		if all = append(all, r); req.Close {
			return all
		}
	}
	return all
}

// readStandard reads requests as net/http does.
func readStandard(raw []byte) (all []seenRequest) {
	br := bufio.NewReader(bytes.NewReader(raw))
	for {
		if next, _ := br.Peek(2); bytes.HasPrefix(next, []byte{'\n'}) || string(next) == "\r\n" {
			_, _ = br.ReadSlice('\n')
		}
		req, err := http.ReadRequest(br)
		if err != nil {
			return all
		}
		r, ok := seen(req)
		if !ok {
			return all
		}
		if all = append(all, r); req.Close {
			return all
		}
	}
}

// FuzzLeanRequests: what a LeanServer takes for requests is what net/http does,
// from the first byte on; it may give up earlier.
func FuzzLeanRequests(f *testing.F) {
	chunked := "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\n\r\n"
	for _, seed := range []string{
		okPost, okPost + okPost, "\r\n" + okPost, chunked + okPost + chunked,
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n" + okPost,
		okPost + "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789" + okPost,
		okPost + "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 02\r\n\r\nhi",
		"POST /a HTTP/1.1\nHost: h\ncontent-length: 2\n\nhi" + okPost,
		"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + okPost,
		"GET http://o/ HTTP/1.0\r\n\r\n" + okPost,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		lean, standard := readLean(raw), readStandard(raw)
		if len(lean) > len(standard) || !slices.Equal(lean, standard[:len(lean)]) {
			t.Errorf("%q:\nlean     %q\nstandard %q", raw, lean, standard)
		}
	})
}
