package streamhttp

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// leanRequest is a request that a [LeanServer] has read the head of, with its
// body.
type leanRequest struct {
	http.Request
	body incoming
}

// knownRequest is a request that came before on a connection.
type knownRequest struct {
	head knownHead
	req  *http.Request
}

// knownRequests are the last few of them: what a client sends differs in the call's
// name, where its head has that.
type knownRequests struct {
	all  [4]knownRequest
	next uint8 // which is forgotten next
}

// match finds the request whose head b begins with; nil: there is none.
func (k *knownRequests) match(b []byte) (req *http.Request, size int, length int64) {
	for i := range k.all {
		if size, length, ok := k.all[i].head.match(b); ok {
			return k.all[i].req, size, length
		}
	}
	return nil, 0, 0
}

func (k *knownRequests) keep(head knownHead, req *http.Request) {
	k.all[k.next] = knownRequest{head, req}
	k.next = (k.next + 1) % uint8(len(k.all))
}

// refusal is the answer to what is no request. The zero refusal is that there
// is nobody to answer.
type refusal struct {
	status int
	text   string
}

func (r refusal) String() string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		r.status, http.StatusText(r.status), len(r.text)+1, r.text)
}

func badRequest(text string) refusal { return refusal{http.StatusBadRequest, text} }

// readRequest reads the head of a request; nil: there is none, but a refusal.
func (c *serverConn) readRequest() (*leanRequest, refusal) {
	buffered, _ := c.br.Peek(c.br.Buffered())
	if req, size, length := c.known.match(buffered); req != nil {
		_, _ = c.br.Discard(size)
		return c.request(req, length), refusal{}
	}
	head, r := c.readHead()
	if head == nil {
		return nil, r
	}
	return c.parse(head)
}

// request makes a request with a body of length bytes; -1: a chunked one.
func (c *serverConn) request(head *http.Request, length int64) *leanRequest {
	r := &c.req
	r.Request, r.body = *head, incoming{}
	r.ContentLength = length
	r.Body = r.body.begin(c, length)
	return r
}

// readHead reads up to the empty line, and returns all of it. One empty line
// before that is skipped, as some clients end a body with one.
func (c *serverConn) readHead() ([]byte, refusal) {
	head := make([]byte, 0, 512)
	for skipped := false; ; {
		from := len(head)
		var err error
		head, err = c.appendLine(head)
		empty := len(bytes.TrimSuffix(head[from:], []byte{'\r', '\n'})) == 0 || string(head[from:]) == "\n"
		switch {
		case len(head) > c.srv.MaxHeaderBytes:
			return nil, refusal{http.StatusRequestHeaderFieldsTooLarge, "the header is too large"}
		case err != nil:
			return nil, refusal{}
		case empty && from > 0:
			return head, refusal{}
		case empty && skipped:
			return nil, badRequest("a request begins with its request line")
		case empty:
			head, skipped = head[:0], true
		}
	}
}

// appendLine appends a line with its end, or more than a header may have.
func (c *serverConn) appendLine(head []byte) ([]byte, error) {
	for {
		part, err := c.br.ReadSlice('\n')
		head = append(head, part...)
		if err != bufio.ErrBufferFull || len(head) > c.srv.MaxHeaderBytes {
			return head, err
		}
	}
}

// parse makes a request of its head. What [http.ReadRequest] leaves to a server
// is checked before, and what it does to decide where the body ends is allowed
// only where there is nothing to decide.
func (c *serverConn) parse(head []byte) (*leanRequest, refusal) {
	f, r := inspect(head)
	if r.status != 0 {
		return nil, r
	}
	req, err := parseHead(head)
	switch {
	case err != nil:
		return nil, badRequest("the request cannot be read")
	case req.ProtoMajor != 1:
		return nil, refusal{http.StatusHTTPVersionNotSupported, "HTTP/1.1 is spoken here"}
	case req.ProtoAtLeast(1, 1) && f.hosts == 0:
		return nil, badRequest("a Host is missing")
	case !req.ProtoAtLeast(1, 1) && f.chunked:
		return nil, badRequest("HTTP/1.0 knows no Transfer-Encoding")
	}
	length, expect := req.ContentLength, req.Header.Get("Expect")
	if expect != "" && !strings.EqualFold(expect, "100-continue") {
		return nil, refusal{http.StatusExpectationFailed, "100-continue is all that may be expected"}
	}
	req.Close = req.Close || !req.ProtoAtLeast(1, 1)
	req.RemoteAddr, req.TLS, req.Body = c.remote, c.tls, nil
	delete(req.Header, "Content-Length")
	req = req.WithContext(c.ctx)
	if k, ok := newKnownHead(head); ok && expect == "" && !req.Close {
		c.known.keep(k, req)
	}
	out := c.request(req, length)
	out.body.continues = expect != "" && req.ProtoAtLeast(1, 1) && length != 0
	return out, refusal{}
}

// parseHead has the standard library read a head, all of it.
func parseHead(head []byte) (*http.Request, error) {
	var src bytes.Reader
	src.Reset(head)
	br := readers.Get().(*bufio.Reader)
	br.Reset(&src)
	defer putReader(br)
	req, err := http.ReadRequest(br)
	if err == nil && br.Buffered()+src.Len() > 0 {
		err = errHead
	}
	return req, err
}

// headFacts are what a request's head says of where its body ends, and of hosts.
type headFacts struct {
	hosts, lengths int
	chunked        bool
}

// inspect checks a head line by line.
func inspect(head []byte) (f headFacts, r refusal) {
	if !printable(head) {
		return f, badRequest("the header has control characters")
	}
	_, rest, _ := bytes.Cut(head, []byte{'\n'})
	for len(rest) > 0 && r.status == 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		if line = bytes.TrimSuffix(line, []byte{'\r'}); len(line) > 0 {
			r = f.add(line)
		}
	}
	return f, r
}

// add checks a header line.
func (f *headFacts) add(line []byte) refusal {
	name, value, ok := bytes.Cut(line, []byte{':'})
	if !ok || !wire.IsToken(name) {
		return badRequest("a header line needs a name, a colon and a value, in one line")
	}
	value = bytes.Trim(value, " \t")
	switch {
	case bytes.EqualFold(name, []byte("Host")):
		if f.hosts++; f.hosts > 1 || !isHost(value) {
			return badRequest("one Host is needed, and it must be one")
		}
	case bytes.EqualFold(name, []byte("Content-Length")):
		if f.lengths++; f.lengths > 1 || f.chunked {
			return badRequest("there is more than one length of the body")
		}
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		if f.chunked || f.lengths > 0 {
			return badRequest("there is more than one length of the body")
		}
		if !bytes.EqualFold(value, []byte("chunked")) {
			return refusal{http.StatusNotImplemented, "unsupported Transfer-Encoding"}
		}
		f.chunked = true
	}
	return refusal{}
}

// printable reports whether a head has no control characters but tabs, and
// carriage returns nowhere but before line feeds.
func printable(head []byte) bool {
	for i, b := range head {
		switch {
		case b == '\r' && head[i+1] != '\n', b < ' ' && b != '\t' && b != '\r' && b != '\n', b == 0x7f:
			return false
		}
	}
	return true
}

// isHost allows an empty one, as a URL may have none; whom that suits is the
// handler's to say.
func isHost(value []byte) bool { return wire.MadeOf(value, "!$%&'()*+,-.:;=[]_~") }
