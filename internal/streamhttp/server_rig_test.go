package streamhttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// script is a session that does what a test says.
type script struct {
	own    wire.Stream
	info   PeerInfo
	on     func(s *script, m *wire.Message, to wire.Stream) wire.Pending
	listen chan struct{} // one for each Listen
	closed chan struct{}

	version atomic.Pointer[string]
	once    sync.Once

	mu   sync.Mutex
	seen []string // guarded by mu: the methods handled, in order
}

func (s *script) Version() string {
	if v := s.version.Load(); v != nil {
		return *v
	}
	return ""
}

func (s *script) Listen() { s.listen <- struct{}{} }
func (s *script) Close()  { s.once.Do(func() { close(s.closed) }) }

func (s *script) Handle(m *wire.Message, to wire.Stream) wire.Pending {
	s.mu.Lock()
	s.seen = append(s.seen, m.Method)
	s.mu.Unlock()
	if m.Method == "initialize" && m.P.ProtocolVersion != "refuse" {
		v := m.P.ProtocolVersion
		s.version.Store(&v)
		to.Answer(result(m, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"serverInfo":{"name":"s","version":"1"}}`, v)))
		return nil
	}
	if s.on != nil {
		return s.on(s, m, to)
	}
	if m.Kind == wire.Request {
		to.Answer(result(m, `{}`))
	}
	return nil
}

func (s *script) methods() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.seen, " ")
}

func result(m *wire.Message, result string) []byte {
	return wire.ResultAnswer(m.Bytes(m.ID), []byte(result))
}

// pending is a wire.Pending made of a function.
type pending func()

func (p pending) Wait() { p() }

func (pending) Detach(func()) bool { return false }

// rig is a server under test, reached by raw bytes.
type rig struct {
	t            *testing.T
	srv          *Server
	http         *httpserver.Server
	writeTimeout time.Duration // of http; 0: its default
	dial         func() (net.Conn, error)
	sessions     chan *script // those begun
}

type listener interface {
	net.Listener
	Dial() (net.Conn, error)
}

// tcp listens on loopback.
type tcp struct{ net.Listener }

func (l tcp) Dial() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }

type behaviour = func(s *script, m *wire.Message, to wire.Stream) wire.Pending

// newRig serves sessions with a behaviour over loopback TCP.
func newRig(t *testing.T, cfg ServerConfig, on behaviour) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startRig(t, tcp{l}, cfg, on)
}

// newBubbleRig is newRig for a synctest bubble.
func newBubbleRig(t *testing.T, cfg ServerConfig, on behaviour) *rig {
	t.Helper()
	return startRig(t, mcptest.NewPipes(), cfg, on)
}

func startRig(t *testing.T, l listener, cfg ServerConfig, on behaviour) *rig {
	t.Helper()
	r := &rig{t: t, dial: l.Dial, sessions: make(chan *script, 1000)}
	cfg.Open = func(own wire.Stream, info PeerInfo) (wire.Session, error) {
		s := &script{own: own, info: info, on: on, listen: make(chan struct{}, 100), closed: make(chan struct{})}
		r.sessions <- s
		return s, nil
	}
	r.serve(NewServer(cfg), l)
	return r
}

// startRigWith serves a server as it is.
func startRigWith(t *testing.T, srv *Server) *rig {
	t.Helper()
	return startHurriedRig(t, srv, 0)
}

// startHurriedRig is startRigWith for clients that read within a time.
func startHurriedRig(t *testing.T, srv *Server, writeTimeout time.Duration) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dial: tcp{l}.Dial, writeTimeout: writeTimeout}
	r.serve(srv, l)
	return r
}

func (r *rig) serve(srv *Server, l net.Listener) {
	r.srv, r.http = srv, &httpserver.Server{Handler: srv, WriteTimeout: r.writeTimeout}
	served := make(chan struct{})
	go func() { defer close(served); _ = r.http.Serve(l) }()
	r.t.Cleanup(func() {
		_ = r.srv.Close(context.Background())
		_ = r.http.Close()
		<-served
	})
}

// conn is a client's connection.
type conn struct {
	net.Conn
	t  *testing.T
	br *bufio.Reader
}

func (r *rig) connect() *conn {
	r.t.Helper()
	c, err := r.dial()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return &conn{Conn: c, t: r.t, br: bufio.NewReader(c)}
}

// send writes a raw request.
func (c *conn) send(raw string) *conn {
	c.t.Helper()
	if _, err := io.WriteString(c, raw); err != nil {
		c.t.Fatal(err)
	}
	return c
}

// response reads the status line and headers of a response.
func (c *conn) response() *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		c.t.Fatal("reading a response:", err)
	}
	return resp
}

// served is a whole response.
type served struct {
	*http.Response
	body string
}

func (c *conn) reply() served {
	c.t.Helper()
	resp := c.response()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal("reading a body:", err)
	}
	return served{resp, string(body)}
}

func (p served) want(t *testing.T, status int, body string) served {
	t.Helper()
	if p.StatusCode != status || !strings.Contains(p.body, body) {
		t.Fatalf("got %s %q, want %d with %q", p.Status, p.body, status, body)
	}
	return p
}

func (p served) wantHeader(t *testing.T, name, value string) served {
	t.Helper()
	if got := strings.Join(p.Header.Values(name), ", "); got != value {
		t.Fatalf("%s: got %q, want %q", name, got, value)
	}
	return p
}

// request makes raw requests. Headers are "Name: value"; one of the same name
// replaces a default.
func request(method, path, body string, headers ...string) string {
	all := []string{"Host: localhost"}
	if method == http.MethodPost {
		all = append(all, "Content-Type: application/json", "Accept: application/json, text/event-stream",
			fmt.Sprintf("Content-Length: %d", len(body)))
	}
	if method == http.MethodGet {
		all = append(all, "Accept: text/event-stream")
	}
	for _, h := range headers {
		name, _, _ := strings.Cut(h, ":")
		for i, other := range all {
			if strings.HasPrefix(strings.ToLower(other), strings.ToLower(name)+":") {
				all = append(all[:i], all[i+1:]...)
				break
			}
		}
		if !strings.HasSuffix(h, ": -") { // "Name: -": without it
			all = append(all, h)
		}
	}
	return method + " " + path + " HTTP/1.1\r\n" + strings.Join(all, "\r\n") + "\r\n\r\n" + body
}

func post1(body string, headers ...string) string { return request("POST", "/mcp", body, headers...) }

// do sends a raw request on a connection of its own and reads the whole reply.
func (r *rig) do(raw string) served {
	r.t.Helper()
	c := r.connect()
	defer c.Close()
	return c.send(raw).reply()
}

const initBody = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// client is an initialized session as its client sees it.
type client struct {
	*rig
	*script
	id string // the header line
}

func (r *rig) begin(version string) *client {
	r.t.Helper()
	p := r.do(post1(fmt.Sprintf(initBody, version)))
	p.want(r.t, 200, `"result"`)
	id := p.Header.Get(headerSession)
	if id == "" {
		r.t.Fatal("no Mcp-Session-Id")
	}
	return &client{rig: r, script: <-r.sessions, id: "Mcp-Session-Id: " + id}
}

func (c *client) post(body string, headers ...string) served {
	c.t.Helper()
	return c.do(post1(body, append([]string{c.id}, headers...)...))
}

// open sends a POST and returns its connection.
func (c *client) open(body string, headers ...string) *conn {
	c.t.Helper()
	return c.connect().send(post1(body, append([]string{c.id}, headers...)...))
}

// stream opens an event stream by GET.
func (c *client) stream(headers ...string) *events {
	c.t.Helper()
	return c.connect().send(request("GET", "/mcp", "", append([]string{c.id}, headers...)...)).events()
}

func call(id int, tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q}}`, id, tool)
}

// events reads an event stream, line by line.
type events struct {
	*conn
	resp *http.Response
	br   *bufio.Reader
}

func (c *conn) events() *events {
	c.t.Helper()
	resp := c.response()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != typeSSE {
		body, _ := io.ReadAll(resp.Body)
		c.t.Fatalf("no event stream: %s %s %s", resp.Status, resp.Header, body)
	}
	return &events{conn: c, resp: resp, br: bufio.NewReader(resp.Body)}
}

// seenEvent is a block of an event stream.
type seenEvent struct{ id, data, comment string }

func (e *events) read() (ev seenEvent, err error) {
	for {
		line, err := e.br.ReadBytes('\n')
		if err != nil {
			return ev, err
		}
		name, value, _ := strings.Cut(string(bytes.TrimSuffix(line, []byte{'\n'})), ": ")
		switch name {
		case "":
			if value == "" {
				return ev, nil
			}
			ev.comment = value
		case "id":
			ev.id = value
		case "data":
			ev.data = value
		}
	}
}

// next returns the next block, whatever it is.
func (e *events) next() seenEvent {
	e.t.Helper()
	ev, err := e.read()
	if err != nil {
		e.t.Fatal("reading an event:", err)
	}
	return ev
}

// message returns the next event that has data.
func (e *events) message(want string) seenEvent {
	e.t.Helper()
	for {
		ev := e.next()
		if ev.data == "" {
			continue
		}
		if !strings.Contains(ev.data, want) {
			e.t.Fatalf("got event %q, want %q", ev.data, want)
		}
		if ev.id == "" {
			e.t.Fatalf("event %q has no id", ev.data)
		}
		return ev
	}
}

// end wants the stream's orderly end.
func (e *events) end() {
	e.t.Helper()
	for {
		ev, err := e.read()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
		if err != nil || ev.data != "" {
			e.t.Fatalf("got %+v, %v; want the stream's end", ev, err)
		}
	}
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("still not:", what)
		}
		<-ticker.C
	}
}

func note(n int) []byte {
	return wire.NotificationMessage("notifications/message", fmt.Appendf(nil, `{"data":%d}`, n))
}

// readAny reads one response off a connection that more follow on.
func readAny(t *testing.T, c net.Conn) string {
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return string(body)
}
