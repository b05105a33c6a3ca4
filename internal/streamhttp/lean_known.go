package streamhttp

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
)

// knownAnswer is an answer that came before on a connection.
type knownAnswer struct {
	head knownHead
	resp *http.Response
}

// readHead reads the head of an answer. One that differs from the last in its
// length alone is not parsed again.
func (c *leanConn) readHead(out *outgoing) (*http.Response, error) {
	if _, err := c.br.Peek(1); err != nil {
		return nil, err
	}
	buffered, _ := c.br.Peek(c.br.Buffered())
	if size, length, ok := c.known.head.match(buffered); ok && out.method != http.MethodHead {
		_, _ = c.br.Discard(size)
		resp := *c.known.resp
		resp.Request, resp.ContentLength = out.req, length
		resp.Body = sized(c.br, length)
		return &resp, nil
	}
	return c.parseHead(out, buffered)
}

// parseHead reads the head of an answer, and keeps it for the next one if it is
// all here: buffered.
func (c *leanConn) parseHead(out *outgoing, buffered []byte) (*http.Response, error) {
	var k knownHead
	var ok bool
	end := bytes.Index(buffered, []byte("\r\n\r\n"))
	if end >= 0 {
		if k, ok = newKnownHead(buffered[:end+4]); ok {
			k = k.clone()
		}
	}
	before := c.br.Buffered()
	resp, err := http.ReadResponse(c.br, out.req)
	if !ok || err != nil || before-c.br.Buffered() != end+4 {
		return resp, err
	}
	if resp.StatusCode == http.StatusOK && resp.ProtoAtLeast(1, 1) && !resp.Close && out.method != http.MethodHead {
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

func sized(br *bufio.Reader, length int64) io.ReadCloser {
	if length == 0 {
		return http.NoBody
	}
	return &sizedBody{br, length}
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
