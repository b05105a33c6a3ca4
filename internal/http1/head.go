package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Field is one line of a request's header. Name is in its canonical form.
type Field struct{ Name, Value string }

// Prepared is a request without its body: what many requests have in common, checked
// and put together once.
type Prepared struct {
	req  *http.Request
	addr string // of the server
	head []byte // the request line and the header, up to the length
}

// Prepare takes the request line and the header of a request. What would not be read as
// that very line by every server is an error.
func Prepare(req *http.Request) (*Prepared, error) {
	target := req.URL.RequestURI()
	switch {
	case req.URL.Scheme != "http":
		return nil, errTLS
	case !isToken(req.Method):
		return nil, fmt.Errorf("the method %q is no HTTP method", req.Method)
	case slices.ContainsFunc([]byte(target), func(c byte) bool { return c <= ' ' || c == 0x7f }):
		return nil, errors.New("the path or query of the URL holds a space or a control character: escape it (%20)")
	case !isHost(req.URL.Host):
		return nil, fmt.Errorf("the host %q has a character that no host has: write an international name in its ASCII form (xn--…)", req.URL.Host)
	}
	b := append(append([]byte(req.Method), ' '), target...)
	b = appendLine(append(b, " HTTP/1.1\r\n"...), "Host", req.URL.Host)
	for name, values := range req.Header {
		for _, value := range values {
			if err := CheckField(name, value); err != nil {
				return nil, err
			}
			b = appendLine(b, name, value)
		}
	}
	return &Prepared{req, address(req.URL), b}, nil
}

// address is where the server of a URL listens.
func address(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

// appendHead appends the request's whole head.
func (out *outgoing) appendHead(b []byte) []byte {
	b = append(b, out.head...)
	for _, f := range out.fields {
		b = appendLine(b, f.Name, f.Value)
	}
	if n := len(out.body); n > 0 || out.req.Method == http.MethodPost {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), int64(n), 10), "\r\n"...)
	}
	return append(b, "\r\n"...)
}

// appendLine appends a line of a header that [CheckField] has nothing against.
func appendLine(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}

const (
	alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	// tokenMarks are what a token may have besides (RFC 9110, section 5.6.2), and hostMarks a host (RFC 3986, section 3.2.2).
	tokenMarks = "!#$%&'*+-.^_`|~"
	hostMarks  = "!$%&'()*+,-.:;=[]_~"
)

// isToken reports whether text can be a method, or the name of a header.
func isToken(text string) bool {
	return text != "" && strings.Trim(text, alphanumeric+tokenMarks) == ""
}

// isHost reports whether text can be a Host header.
func isHost(text string) bool { return text != "" && strings.Trim(text, alphanumeric+hostMarks) == "" }

// framing are the header names that say where a request ends or to whom it goes:
// a client writes them itself, once.
var framing = []string{"Content-Length", "Host", "Trailer", "Transfer-Encoding"}

// CheckField says why a line of a header cannot be sent: it is not one line of
// one name, or it is one that the client writes itself. The error repeats nothing
// that may be a secret.
func CheckField(name, value string) error {
	switch {
	case !isToken(name):
		return errors.New("the header's name has a character that no header name has")
	case slices.Contains(framing, http.CanonicalHeaderKey(name)):
		return fmt.Errorf("the header %s is written by the HTTP client itself: leave it out", name)
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return fmt.Errorf("the value of the header %s has a line break or another control character", name)
	}
	return nil
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
