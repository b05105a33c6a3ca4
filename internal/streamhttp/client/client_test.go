//go:build unix

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"

	"github.com/fsm-proxy/fsm-proxy/internal/http1"
)

// gathered is a sink for the request with id 1.
type gathered struct {
	messages []string
	paused   []time.Duration
}

func (g *gathered) Paused(retry time.Duration) { g.paused = append(g.paused, retry) }

func (g *gathered) Take(raw []byte) bool {
	g.messages = append(g.messages, string(raw))
	m, err := wire.Read(raw, wire.FromUpstream)
	return err == nil && string(m.Bytes(m.ID)) == "1" && m.Method == ""
}

func (g *gathered) Refused(raw []byte) bool {
	m, err := wire.Read(raw, wire.FromUpstream)
	if err != nil || m.Kind != wire.Failure || m.ID.Present() && string(m.Bytes(m.ID)) != "1" {
		return false
	}
	g.messages = append(g.messages, string(raw))
	return true
}

const (
	rawQuestion = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`
	rawAnswer   = `{"jsonrpc":"2.0","id":1,"result":{}}`
	rawNote     = `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`
	rawReady    = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	rawGreeting = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`
)

// clientRig is a client of a raw server.
type clientRig struct {
	*Client
	heard chan string // on the session's own stream
	gone  chan error
}

func newClientRig(t *testing.T, s *mcptest.RawServer, change ...func(*Config)) *clientRig {
	t.Helper()
	rig := &clientRig{heard: make(chan string, 100), gone: make(chan error, 1)}
	transport := new(http1.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	cfg := Config{
		URL: s.URL(), Header: http.Header{"X-Extra": {"yes"}}, Transport: transport, MaxMessage: 1 << 20, Log: hclog.NewNullLogger(),
		Receive: func(raw []byte) { rig.heard <- string(raw) },
		Gone:    func(err error) { rig.gone <- err },
	}
	for _, f := range change {
		f(&cfg)
	}
	rig.Client = New(cfg)
	t.Cleanup(rig.Close)
	return rig
}

// open gives the client a session named s1.
func (r *clientRig) open(t *testing.T) {
	t.Helper()
	if err := r.Initialize(t.Context(), []byte(rawGreeting), new(gathered)); err != nil {
		t.Fatal(err)
	}
	r.SetVersion("2025-06-18")
}

// clientHandler answers in HTTP, whatever the connection.
type clientHandler func(c net.Conn, req *http.Request, body string)

// behaving answers initialize, notifications, DELETE and GET as a server does,
// and leaves the rest to h.
func behaving(h clientHandler) func(net.Conn, int, *http.Request, string) {
	return func(c net.Conn, _ int, req *http.Request, body string) {
		switch {
		case strings.Contains(body, `"initialize"`):
			mcptest.RawReply(c, "Content-Type: application/json\r\nMcp-Session-Id: s1\r\n", rawAnswer)
		case req.Method == "POST" && !strings.Contains(body, `"id"`), req.Method == "DELETE":
			sendStatus(c, 202, "", "")
		case req.Method == "GET" && req.Header.Get("Last-Event-Id") == "" && !strings.Contains(req.URL.Path, "listen"):
			sendStatus(c, 405, "", "")
		default:
			h(c, req, body)
		}
	}
}

func sendStatus(c net.Conn, code int, header, body string) {
	fmt.Fprintf(c, "HTTP/1.1 %d %s\r\n%sContent-Length: %d\r\n\r\n%s", code, http.StatusText(code), header, len(body), body)
}

// sendEvents answers with an event stream of known length.
func sendEvents(c net.Conn, body string) {
	mcptest.RawReply(c, "Content-Type: text/event-stream\r\n", body)
}

func eventOf(data string) string { return "data: " + data + "\n\n" }

func TestPostJSON(t *testing.T) {
	s := mcptest.NewRawServer(t, behaving(func(c net.Conn, req *http.Request, body string) {
		h := req.Header
		if h.Get("Accept") != "application/json, text/event-stream" || h.Get("Content-Type") != "application/json" ||
			h.Get("Mcp-Session-Id") != "s1" || h.Get("MCP-Protocol-Version") != "2025-06-18" || h.Get("X-Extra") != "yes" || body != rawQuestion {
			t.Error("request:", h, body)
		}
		mcptest.RawReply(c, "Content-Type: application/json; charset=utf-8\r\n", rawAnswer)
	}))
	c := newClientRig(t, s)
	c.open(t)
	var g gathered
	if err := c.Post(t.Context(), []byte(rawQuestion), &g); err != nil || len(g.messages) != 1 || g.messages[0] != rawAnswer {
		t.Error(err, g.messages)
	}
}

func TestInitializeHasNoSessionHeaders(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, req *http.Request, _ string) {
		if req.Header.Get("Mcp-Session-Id")+req.Header.Get("Mcp-Protocol-Version") != "" {
			t.Error(req.Header)
		}
		mcptest.RawReply(c, "Content-Type: application/json\r\n", rawAnswer)
	})
	newClientRig(t, s).open(t)
}

func TestInitializeBadSessionID(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) {
		mcptest.RawReply(c, "Content-Type: application/json\r\nMcp-Session-Id: a b\r\n", rawAnswer)
	})
	if err := newClientRig(t, s).Initialize(t.Context(), []byte(rawGreeting), new(gathered)); err == nil {
		t.Error("taken")
	}
}

func TestPostSSE(t *testing.T) {
	for name, body := range map[string]string{
		"LF":         eventOf(rawNote) + eventOf(rawAnswer),
		"CRLF":       "data: " + rawNote + "\r\n\r\ndata: " + rawAnswer + "\r\n\r\n",
		"CR":         "data: " + rawNote + "\r\rdata: " + rawAnswer + "\r\r",
		"named":      "event: message\ndata: " + rawNote + "\n\nevent: message\ndata: " + rawAnswer + "\n\n",
		"other name": "event: ping\ndata: " + rawAnswer + "\n\n" + eventOf(rawNote) + eventOf(rawAnswer),
		"empty data": "id: 1\ndata:\n\n" + eventOf(rawNote) + eventOf(rawAnswer),
		"comment":    ": x\n\n" + eventOf(rawNote) + eventOf(rawAnswer),
		"mark":       "\xef\xbb\xbf" + eventOf(rawNote) + eventOf(rawAnswer),
		"multi-line": eventOf(rawNote) + "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":1,\"result\":{}}\n\n",
	} {
		s := mcptest.NewRawServer(t, behaving(func(c net.Conn, _ *http.Request, _ string) { sendEvents(c, body) }))
		c := newClientRig(t, s)
		c.open(t)
		var g gathered
		if err := c.Post(t.Context(), []byte(rawQuestion), &g); err != nil || len(g.messages) != 2 || g.messages[0] != rawNote ||
			strings.ReplaceAll(g.messages[1], "\n", "") != rawAnswer {
			t.Error(name, err, g.messages)
		}
	}
}

// A message that follows the answer on its stream is taken, and the connection
// used again.
func TestPostLingers(t *testing.T) {
	proceed := make(chan struct{})
	s := mcptest.NewRawServer(t, behaving(func(c net.Conn, _ *http.Request, _ string) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		fmt.Fprintf(c, "%x\r\n%s\r\n", len(eventOf(rawAnswer)), eventOf(rawAnswer))
		<-proceed
		fmt.Fprintf(c, "%x\r\n%s\r\n0\r\n\r\n", len(eventOf(rawNote)), eventOf(rawNote))
	}))
	c := newClientRig(t, s)
	c.open(t)
	late := make(chan string, 1)
	sink := sinkFunc(func(raw []byte) bool {
		if string(raw) == rawNote {
			late <- string(raw)
		}
		return string(raw) == rawAnswer
	})
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Post(ctx, []byte(rawQuestion), sink); err != nil {
		t.Fatal(err)
	}
	cancel()
	close(proceed)
	<-late
}

type sinkFunc func([]byte) bool

func (f sinkFunc) Take(raw []byte) bool { return f(raw) }
func (f sinkFunc) Refused([]byte) bool  { return false }
func (f sinkFunc) Paused(time.Duration) {}

func TestPostFailures(t *testing.T) {
	const other = `{"jsonrpc":"2.0","id":2,"result":{}}`
	json := "Content-Type: application/json\r\n"
	for name, tc := range map[string]struct {
		raw    string // the whole answer, before the connection closes
		status int    // of the error
		text   string // in the error
	}{
		"no answer":            {"", 0, "closed the connection"},
		"head cut off":         {"HTTP/1.1 200 OK\r\nContent-", 0, "missing colon"},
		"no HTTP":              {"SSH-2.0-OpenSSH\r\n\r\n", 0, "malformed"},
		"body cut off":         {"HTTP/1.1 200 OK\r\n" + json + "Content-Length: 99\r\n\r\n" + rawAnswer, 0, "cut it off"},
		"chunks cut off":       {"HTTP/1.1 200 OK\r\n" + json + "Transfer-Encoding: chunked\r\n\r\n9\r\n{", 0, "cut it off"},
		"no JSON":              {"HTTP/1.1 200 OK\r\n" + json + "Content-Length: 3\r\n\r\n{]}", 200, "does not answer"},
		"answer to another":    {fmt.Sprintf("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", json, len(other), other), 200, "does not answer"},
		"too long":             {"HTTP/1.1 200 OK\r\n" + json + "Content-Length: 9999999\r\n\r\n{", 0, "9999999 bytes"},
		"wrong content type":   {"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi", 200, "text/html"},
		"no content type":      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, "content type"},
		"202":                  {"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", 202, "Accepted"},
		"204":                  {"HTTP/1.1 204 No Content\r\n\r\n", 204, "No Content"},
		"400":                  {"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno", 400, "Bad Request"},
		"401":                  {"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", 401, "Unauthorized"},
		"500":                  {"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n", 500, "Internal"},
		"502 with HTML":        {"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi", 502, "Bad Gateway"},
		"503 with other JSON":  {"HTTP/1.1 503 Service Unavailable\r\n" + json + "Content-Length: 2\r\n\r\n{}", 503, "Unavailable"},
		"error with result":    {fmt.Sprintf("HTTP/1.1 500 X\r\n%sContent-Length: %d\r\n\r\n%s", json, len(rawAnswer), rawAnswer), 500, "Internal"},
		"SSE without answer":   {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + eventOf(rawNote), 0, "ended the stream"},
		"SSE cut in an event":  {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: " + rawAnswer + "\n", 0, "ended the stream"},
		"SSE answers another":  {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + eventOf(other), 0, "ended the stream"},
		"SSE giant line":       {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: " + strings.Repeat("x", 2<<20), 0, "longer than"},
		"redirect elsewhere":   {"HTTP/1.1 307 T\r\nLocation: http://127.0.0.1:1/mcp\r\nContent-Length: 0\r\n\r\n", 307, "another host"},
		"redirect to https":    {"HTTP/1.1 308 P\r\nLocation: https://127.0.0.1/mcp\r\nContent-Length: 0\r\n\r\n", 308, "another host"},
		"redirect to a GET":    {"HTTP/1.1 303 S\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", 303, "change the request"},
		"redirect to nowhere":  {"HTTP/1.1 307 T\r\nContent-Length: 0\r\n\r\n", 307, "Location"},
		"switching protocols":  {"HTTP/1.1 101 Switching Protocols\r\n\r\n", 0, "1xx"},
		"interim ones forever": {strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 20), 0, "1xx"},
	} {
		t.Run(name, func(t *testing.T) {
			s := mcptest.NewRawServer(t, behaving(func(c net.Conn, _ *http.Request, _ string) {
				io.WriteString(c, tc.raw)
				c.Close()
			}))
			c := newClientRig(t, s)
			c.open(t)
			err := c.Post(t.Context(), []byte(rawQuestion), new(gathered))
			failed, ok := errors.AsType[*wire.CallError](err)
			if !ok || !failed.Sent || failed.Status != tc.status || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%+v", err)
			}
			if n := s.Requests.Load(); n != 2 {
				t.Errorf("the server got %d requests", n-1)
			}
		})
	}
}

func TestPostRefusedWithAnswer(t *testing.T) {
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}`,
	} {
		s := mcptest.NewRawServer(t, behaving(func(c net.Conn, _ *http.Request, _ string) {
			sendStatus(c, 400, "Content-Type: application/json\r\n", body)
		}))
		c := newClientRig(t, s)
		c.open(t)
		var g gathered
		if err := c.Post(t.Context(), []byte(rawQuestion), &g); err != nil || len(g.messages) != 1 {
			t.Error(err, g.messages)
		}
	}
}

func TestPostNotSent(t *testing.T) {
	s := mcptest.NewRawServer(t, behaving(nil))
	c := newClientRig(t, s, func(cfg *Config) {
		cfg.Authorize = func(context.Context) (string, error) { return "", errors.New("no token") }
	})
	err := c.Post(t.Context(), []byte(rawQuestion), new(gathered))
	if failed, ok := errors.AsType[*wire.CallError](err); !ok || failed.Sent || s.Requests.Load() != 0 {
		t.Errorf("%+v", err)
	}
}

func TestSessionForgotten(t *testing.T) {
	for name, body := range map[string]string{"empty": "", "TypeScript SDK": `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`} {
		s := mcptest.NewRawServer(t, behaving(func(c net.Conn, _ *http.Request, _ string) {
			sendStatus(c, 404, "Content-Type: application/json\r\n", body)
		}))
		c := newClientRig(t, s)
		c.open(t)
		err := c.Post(t.Context(), []byte(rawQuestion), new(gathered))
		if failed, ok := errors.AsType[*wire.CallError](err); !ok || failed.Status != 404 {
			t.Errorf("%s: %+v", name, err)
		}
		<-c.gone
		c.Close()
		if n := s.Requests.Load(); n != 2 {
			t.Errorf("%s: a session that is gone was ended by DELETE", name)
		}
	}
}

func TestRedirectWithinHost(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, req *http.Request, body string) {
		if req.URL.Path == "/mcp" {
			sendStatus(c, 307, "Location: /mcp/\r\n", "")
			return
		}
		if req.Method != "POST" || body != rawQuestion {
			t.Error(req.Method, body)
		}
		mcptest.RawReply(c, "Content-Type: application/json\r\n", rawAnswer)
	})
	if err := newClientRig(t, s).Post(t.Context(), []byte(rawQuestion), new(gathered)); err != nil {
		t.Error(err)
	}
}

func TestRedirectLoop(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) { sendStatus(c, 308, "Location: /mcp\r\n", "") })
	if err := newClientRig(t, s).Post(t.Context(), []byte(rawQuestion), new(gathered)); err == nil || s.Requests.Load() != maxRedirects {
		t.Error(err, s.Requests.Load())
	}
}

// The server ends the stream before the answer, as server-side polling does, and
// gives the rest to a GET.
func TestPostResumed(t *testing.T) {
	gets := 0
	s := mcptest.NewRawServer(t, behaving(func(c net.Conn, req *http.Request, _ string) {
		if req.Method == "POST" {
			sendEvents(c, "id: a\nretry: 10\ndata:\n\n")
			return
		}
		gets++
		if req.Header.Get("Accept") != "text/event-stream" || req.Header.Get("Mcp-Session-Id") != "s1" || req.Header.Get("Content-Type") != "" {
			t.Error(req.Header)
		}
		switch id := req.Header.Get("Last-Event-Id"); {
		case gets == 1 && id == "a":
			sendEvents(c, "id: b\ndata: "+rawNote+"\n\n")
		case gets == 2 && id == "b":
			sendEvents(c, "id: c\ndata: "+rawAnswer+"\n\n")
		default:
			t.Error("resumed from", id)
			c.Close()
		}
	}))
	c := newClientRig(t, s)
	c.open(t)
	var g gathered
	if err := c.Post(t.Context(), []byte(rawQuestion), &g); err != nil || len(g.messages) != 2 {
		t.Error(err, g.messages)
	}
	if len(g.paused) != 1 || g.paused[0] != 10*time.Millisecond { // the second stream did not say so
		t.Error("paused:", g.paused)
	}
}

// A server may be polled as often as it wants to, at the pace that it has set; one that breaks its streams is left in
// peace.
func TestPostPolled(t *testing.T) {
	for name, tc := range map[string]struct {
		f           follower
		least, most time.Duration
	}{
		"first":     {follower{retry: 5 * time.Second, paused: true, empty: 1}, 5 * time.Second, 5 * time.Second},
		"often":     {follower{retry: 5 * time.Second, paused: true, empty: 1000}, 5 * time.Second, 5 * time.Second},
		"too often": {follower{retry: time.Millisecond, paused: true, empty: 1000}, maxPoll, maxPoll},
		"failing":   {follower{retry: time.Second, paused: true, failures: 4}, 16 * time.Second, maxRetry},
		"broken":    {follower{retry: time.Second, empty: 50}, maxRetry, maxRetry},
	} {
		if d := tc.f.wait(); d < tc.least || d > tc.most {
			t.Errorf("%s: waits %v", name, d)
		}
	}
}

// A stream that cannot be resumed has an unknown outcome, whatever the status:
// the request itself had been taken.
func TestPostResumeRefused(t *testing.T) {
	for _, code := range []int{404, 405, 400, 500} {
		s := mcptest.NewRawServer(t, behaving(func(c net.Conn, req *http.Request, _ string) {
			if req.Method == "POST" {
				sendEvents(c, "id: a\nretry: 1\ndata:\n\n")
				return
			}
			sendStatus(c, code, "", "")
		}))
		c := newClientRig(t, s)
		c.open(t)
		err := c.Post(t.Context(), []byte(rawQuestion), new(gathered))
		failed, ok := errors.AsType[*wire.CallError](err)
		if !ok || !failed.Sent || failed.Status != 0 {
			t.Errorf("%d: %+v", code, err)
		}
		if n := s.Requests.Load() - 2; code == 500 && n != maxFailures || code != 500 && n != 1 {
			t.Errorf("%d: tried %d times", code, n)
		}
	}
}

func TestPostCancelled(t *testing.T) {
	got := make(chan struct{}, 1)
	s := mcptest.NewRawServer(t, behaving(func(net.Conn, *http.Request, string) { got <- struct{}{} }))
	c := newClientRig(t, s)
	c.open(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, nil)
	go func() { <-got; cancel() }()
	err := c.Post(ctx, []byte(rawQuestion), new(gathered))
	if failed, ok := errors.AsType[*wire.CallError](err); !ok || !failed.Sent || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v", err)
	}
	<-s.Closed
}

func TestCloseEndsPosts(t *testing.T) {
	got := make(chan struct{}, 1)
	s := mcptest.NewRawServer(t, behaving(func(net.Conn, *http.Request, string) { got <- struct{}{} }))
	c := newClientRig(t, s)
	c.open(t)
	go func() { <-got; c.Close() }()
	err := c.Post(t.Context(), []byte(rawQuestion), new(gathered))
	if failed, ok := errors.AsType[*wire.CallError](err); !ok || !failed.Sent {
		t.Errorf("%+v", err)
	}
}

// Notifications go out in order, and what was queued before Close as well; then
// comes the DELETE.
func TestNotifyInOrder(t *testing.T) {
	var seen []string
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, req *http.Request, body string) {
		if strings.Contains(body, `"initialize"`) {
			mcptest.RawReply(c, "Content-Type: application/json\r\nMcp-Session-Id: s1\r\n", rawAnswer)
			return
		}
		if req.Header.Get("X-Extra") != "yes" || req.Header.Get("Mcp-Session-Id") != "s1" {
			t.Error(req.Header)
		}
		seen = append(seen, req.Method+body)
		sendStatus(c, 202, "", "")
	})
	c := newClientRig(t, s)
	c.open(t)
	want := ""
	for i := range 20 {
		raw := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/x","params":{"n":%d}}`, i)
		want += "POST" + raw
		if err := c.Notify([]byte(raw)); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	if got := strings.Join(seen, ""); got != want+"DELETE" {
		t.Error(got)
	}
	if c.Notify([]byte(rawNote)) == nil {
		t.Error("taken after Close")
	}
}

func TestNotifyBounded(t *testing.T) {
	hold := make(chan struct{})
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) { <-hold; sendStatus(c, 202, "", "") })
	c := newClientRig(t, s, func(cfg *Config) { cfg.MaxQueue = 200 })
	var err error
	for range 5 {
		err = errors.Join(err, c.Notify([]byte(rawNote)))
	}
	close(hold)
	if !errors.Is(err, errQueueFull) {
		t.Error(err)
	}
}

// Requests do not overtake notifications/initialized.
func TestRequestWaitsForInitialized(t *testing.T) {
	taken := make(chan struct{})
	var order []string
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, req *http.Request, body string) {
		switch {
		case req.Method == "GET":
			sendStatus(c, 405, "", "")
		case strings.Contains(body, "initialized"):
			<-taken
			order = append(order, "initialized")
			sendStatus(c, 202, "", "")
		default:
			order = append(order, "request")
			mcptest.RawReply(c, "Content-Type: application/json\r\n", rawAnswer)
		}
	})
	c := newClientRig(t, s)
	if err := c.Notify([]byte(rawReady)); err != nil {
		t.Fatal(err)
	}
	go close(taken)
	if err := c.Post(t.Context(), []byte(rawQuestion), new(gathered)); err != nil {
		t.Fatal(err)
	}
	if strings.Join(order, " ") != "initialized request" {
		t.Error(order)
	}
}

// listening is a server whose GET streams are given by streams, one after the
// other; then they stay open.
func listening(t *testing.T, get func(n int, c net.Conn, lastID string) bool) *mcptest.RawServer {
	n := 0
	return mcptest.NewRawServer(t, func(c net.Conn, _ int, req *http.Request, body string) {
		switch {
		case req.URL.Path != "/mcp":
			t.Errorf("%s %s: no such place was given", req.Method, req.URL.Path)
		case req.Method == "GET":
			n++
			if !get(n, c, req.Header.Get("Last-Event-Id")) {
				c.Close()
			}
		case strings.Contains(body, `"initialize"`):
			mcptest.RawReply(c, "Content-Type: application/json\r\nMcp-Session-Id: s1\r\n", rawAnswer)
		default:
			sendStatus(c, 202, "", "")
		}
	})
}

// The session's own stream is opened after initialized, and again, from where
// it was, after it has ended.
func TestListenReconnects(t *testing.T) {
	opened := make(chan struct{}, 10)
	s := listening(t, func(n int, c net.Conn, lastID string) bool {
		switch n {
		case 1:
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nretry: 10\nid: x\n"+eventOf(rawNote))
			return false
		case 2:
			sendStatus(c, 503, "", "")
		case 3:
			if lastID != "x" {
				t.Error("resumed from", lastID)
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+eventOf(`{"second":1}`))
		}
		return true
	})
	c := newClientRig(t, s, func(cfg *Config) { cfg.Opened = func() { opened <- struct{}{} } })
	c.open(t)
	if c.Listening() {
		t.Error("listening before initialized")
	}
	if err := c.Notify([]byte(rawReady)); err != nil {
		t.Fatal(err)
	}
	if first, second := <-c.heard, <-c.heard; first != rawNote || second != `{"second":1}` {
		t.Error(first, second)
	}
	if !c.Listening() || len(opened) != 1 { // the second was resumed
		t.Error(c.Listening(), len(opened))
	}
}

// A redirect that could be to a page for people is not followed with the session's credentials,
// and does not end the listening.
func TestListenIsNotMoved(t *testing.T) {
	s := listening(t, func(n int, c net.Conn, _ string) bool {
		switch n {
		case 1:
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nretry: 10\nid: x\n"+eventOf(rawNote))
			return false
		case 2:
			sendStatus(c, 302, "Location: /login\r\n", "")
		default:
			sendEvents(c, eventOf(`{"third":1}`))
		}
		return true
	})
	c := newClientRig(t, s)
	c.open(t)
	if err := c.Notify([]byte(rawReady)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{rawNote, `{"third":1}`} {
		if got := <-c.heard; got != want {
			t.Errorf("heard %s, want %s", got, want)
		}
	}
}

// A message larger than all that may wait goes when none does.
func TestLargeMessageIsQueuedAlone(t *testing.T) {
	s := mcptest.NewRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) { sendStatus(c, 202, "", "") })
	c := newClientRig(t, s, func(cfg *Config) { cfg.MaxQueue = 10 })
	if err := c.Notify([]byte(rawNote)); err != nil {
		t.Error(err)
	}
}

func TestListenRefused(t *testing.T) {
	for _, code := range []int{405, 404, 400} {
		asked := make(chan struct{}, 10)
		s := listening(t, func(_ int, c net.Conn, _ string) bool {
			sendStatus(c, code, "", "")
			asked <- struct{}{}
			return true
		})
		c := newClientRig(t, s)
		c.open(t)
		if err := c.Notify([]byte(rawReady)); err != nil {
			t.Fatal(err)
		}
		<-asked
		c.wg.Wait() // the listener has given up by itself
		if len(c.gone) != 0 {
			t.Error("the session passes for gone")
		}
	}
}

// A session that is forgotten while its stream is down is noticed by that.
func TestListenForgotten(t *testing.T) {
	s := listening(t, func(n int, c net.Conn, _ string) bool {
		if n == 1 {
			sendEvents(c, "retry: 10\n"+eventOf(rawNote))
			return true
		}
		sendStatus(c, 404, "", "")
		return true
	})
	c := newClientRig(t, s)
	c.open(t)
	if err := c.Notify([]byte(rawReady)); err != nil {
		t.Fatal(err)
	}
	<-c.gone
}

func TestCloseWhileListening(t *testing.T) {
	opened := make(chan struct{})
	s := listening(t, func(_ int, c net.Conn, _ string) bool {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
		close(opened)
		return true
	})
	c := newClientRig(t, s)
	c.open(t)
	if err := c.Notify([]byte(rawReady)); err != nil {
		t.Fatal(err)
	}
	<-opened
	begun := time.Now()
	c.Close()
	if d := time.Since(begun); d > closing {
		t.Error("closed after", d)
	}
}
