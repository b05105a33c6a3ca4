package streamhttp

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

func TestSessionIDs(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	seen := map[string]bool{}
	for range 100 {
		id := strings.TrimPrefix(r.begin("2025-11-25").id, "Mcp-Session-Id: ")
		if seen[id] || len(id) < 26 { // 26 digits of 5 bits
			t.Fatalf("id %q", id)
		}
		seen[id] = true
		for _, c := range id {
			if c < 0x21 || c > 0x7e {
				t.Fatalf("id %q is not visible ASCII", id)
			}
		}
	}
	if n := r.srv.Sessions(); n != 100 {
		t.Errorf("%d sessions", n)
	}
}

func TestGuessedForgedAndDeletedSessionIDs(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	c := r.begin("2025-11-25")
	id := strings.TrimPrefix(c.id, "Mcp-Session-Id: ")
	for _, forged := range []string{"guess", id + "x", id[:25], strings.ToLower(id), " ", id + " " + id, "\x7f"} {
		for _, method := range []string{"POST", "GET", "DELETE"} {
			if p := r.do(request(method, "/mcp", map[string]string{"POST": ping}[method], "Content-Type: application/json",
				"Accept: */*", "Mcp-Session-Id: "+forged)); p.StatusCode != 404 && p.StatusCode != 400 {
				t.Errorf("%s with %q: %s", method, forged, p.Status)
			}
		}
	}
	r.do(post1(ping, "Mcp-Session-Id: guess")).want(t, 404, "initialize").wantHeader(t, "Content-Type", "text/plain; charset=utf-8")
	r.do(post1(ping, c.id+"\r\n"+c.id)).want(t, 400, "exactly one")
	r.do(request("GET", "/mcp", "")).want(t, 400, "Mcp-Session-Id")
	r.do(request("DELETE", "/mcp", "")).want(t, 400, "Mcp-Session-Id")

	r.do(request("DELETE", "/mcp", "", c.id)).want(t, 204, "")
	<-c.closed
	for _, method := range []string{"POST", "GET", "DELETE"} {
		r.do(request(method, "/mcp", map[string]string{"POST": ping}[method], c.id)).want(t, 404, "no such session")
	}
	if got := c.methods(); got != "initialize" {
		t.Error("handled:", got)
	}
	if n := r.srv.Sessions(); n != 0 {
		t.Errorf("%d sessions", n)
	}
}

// Modern clients take a JSON-RPC body for an answer to what they tried; a
// plain 400 makes them fall back to initialize.
func TestModernFirstClientsFallBack(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		call(1, "x"), ping, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `[` + ping + `]`,
	} {
		p := r.do(post1(body, "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: server/discover"))
		p.want(t, 400, "initialize").wantHeader(t, "Content-Type", "text/plain; charset=utf-8")
	}
	if len(r.sessions) != 0 {
		t.Error("a session was begun")
	}
	r.do(post1("{", "MCP-Protocol-Version: 2026-07-28")).want(t, 400, "-32700")
}

func TestInitializeAnswersWithASession(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	c := r.begin("2025-06-18")
	if c.info.RemoteAddr == "" || c.info.Header.Get("Accept") == "" {
		t.Errorf("peer: %+v", c.info)
	}
	p := r.do(post1(fmt.Sprintf(initBody, "2025-06-18"), "Accept: text/event-stream"))
	p.want(t, 200, "data: {").wantHeader(t, "Content-Type", typeSSE)
	if p.Header.Get(headerSession) == "" {
		t.Error("no session id with an event stream")
	}
}

func TestInitializeThatFailsLeavesNoSession(t *testing.T) {
	r := newRig(t, ServerConfig{Sessions: 1}, func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
		return pending(func() { to.Answer(wire.ErrorAnswer(m.Bytes(m.ID), -32602, "no", nil)) })
	})
	for range 3 { // the room is given back
		p := r.do(post1(fmt.Sprintf(initBody, "refuse")))
		p.want(t, 200, "-32602").wantHeader(t, headerSession, "")
		<-(<-r.sessions).closed
	}
	if n := r.srv.Sessions(); n != 0 {
		t.Errorf("%d sessions", n)
	}
}

func TestInitializeStaysJSONHoweverLongItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBubbleRig(t, ServerConfig{}, func(s *script, m *wire.Message, to wire.Stream) wire.Pending {
			if to.Listening() || to.Send(note(1)) {
				t.Error("initialize must not become an event stream")
			}
			return pending(func() {
				time.Sleep(50 * time.Second) // the bubble's time
				v := "2025-11-25"
				s.version.Store(&v)
				to.Answer(result(m, `{}`))
			})
		})
		p := r.do(post1(fmt.Sprintf(initBody, "refuse")))
		p.want(t, 200, "result").wantHeader(t, "Content-Type", typeJSON)
		if p.Header.Get(headerSession) == "" {
			t.Error("no session")
		}
	})
}

func TestFloodOfSessions(t *testing.T) {
	r := newRig(t, ServerConfig{Sessions: 4}, nil)
	var all []*client
	for range 4 {
		all = append(all, r.begin("2025-06-18"))
	}
	r.do(post1(fmt.Sprintf(initBody, "2025-06-18"))).want(t, 503, "too many sessions").wantHeader(t, "Retry-After", "60")
	for _, c := range all { // no live one was ended for it
		c.post(ping).want(t, 200, "result")
	}
	r.do(request("DELETE", "/mcp", "", all[0].id)).want(t, 204, "")
	r.begin("2025-06-18")
}

func TestFloodLocksOutItself(t *testing.T) {
	srv := NewServer(ServerConfig{Sessions: 10, Open: func(wire.Stream, PeerInfo) (wire.Session, error) {
		return &script{closed: make(chan struct{})}, nil
	}})
	defer srv.Close(context.Background())
	from := func(addr string) int {
		req := httptest.NewRequest("POST", "/mcp", strings.NewReader(fmt.Sprintf(initBody, "2025-06-18")))
		req.RemoteAddr = addr
		req.Header.Set("Content-Type", typeJSON)
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, req)
		return w.Code
	}
	for i := range 10 {
		want := 200
		if i >= 5 {
			want = 503
		}
		if got := from(fmt.Sprintf("[2001:db8::%d]:1", i)); got != want { // one /64
			t.Errorf("session %d: %d, want %d", i, got, want)
		}
	}
	if got := from("192.0.2.1:1"); got != 200 {
		t.Errorf("another network: %d", got)
	}
	for i := range 4 { // many clients stand behind one loopback address
		if got := from("127.0.0.1:1"); got != 200 {
			t.Errorf("loopback %d: %d", i, got)
		}
	}
	if got := from("127.0.0.1:1"); got != 503 {
		t.Errorf("beyond the limit: %d", got)
	}
	for _, s := range srv.table.all(nil) { // shares are given back
		srv.end(s, "test")
	}
	if len(srv.table.quota.networks) != 0 || srv.table.quota.count != 0 {
		t.Errorf("left: %v, %d", srv.table.quota.networks, srv.table.quota.count)
	}
}

func TestSessionsEndByTime(t *testing.T) {
	release := make(chan struct{})
	for _, test := range []struct {
		name  string
		use   func(c *client)
		alive time.Duration // still there after
		over  time.Duration // gone after
	}{
		{"never used", func(*client) {}, 58 * time.Second, 63 * time.Second},
		{"idle", func(c *client) { c.post(ping) }, 59 * time.Minute, 61 * time.Minute},
		{"a running call", func(c *client) { go io.Copy(io.Discard, c.open(call(1, "slow")).br) }, 3 * time.Hour, 0},
		{"a running call without its client", func(c *client) { c.open(call(1, "slow")) }, 59 * time.Minute, 62 * time.Minute},
		{"an open GET", func(c *client) { go io.Copy(io.Discard, c.stream().br) }, 3 * time.Hour, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release = make(chan struct{})
				r := newBubbleRig(t, ServerConfig{}, func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
					if m.P.Name != "slow" {
						to.Answer(result(m, "{}"))
						return nil
					}
					return pending(func() { <-release; to.Answer(result(m, "{}")) })
				})
				c := r.begin("2024-11-05")
				c.t = t
				test.use(c)
				time.Sleep(test.alive)
				synctest.Wait()
				if r.srv.Sessions() != 1 {
					t.Error("ended too early")
				}
				if test.over > 0 {
					time.Sleep(test.over - test.alive)
					<-c.closed
					c.post(ping).want(t, 404, "ended")
				}
				close(release)
			})
		})
	}
}

func TestDeleteEndsStreamsAndAnswersWhatIsUnderWay(t *testing.T) {
	r := newRig(t, ServerConfig{}, func(s *script, m *wire.Message, to wire.Stream) wire.Pending {
		return pending(func() { <-s.closed; to.Answer(result(m, `"cancelled"`)) })
	})
	c := r.begin("2025-06-18")
	get := c.stream()
	<-c.listen
	running := c.open(call(1, "slow"))
	eventually(t, "handled", func() bool { return strings.Contains(c.methods(), "tools/call") })
	r.do(request("DELETE", "/mcp", "", c.id)).want(t, 204, "")
	get.end()
	running.reply().want(t, 200, "cancelled")
	if c.own.Listening() || c.own.Send(note(1)) {
		t.Error("an ended session takes messages")
	}
}

func TestCloseEndsEverything(t *testing.T) {
	r := newRig(t, ServerConfig{}, func(s *script, m *wire.Message, to wire.Stream) wire.Pending {
		return pending(func() { <-s.closed; to.Answer(result(m, `"cancelled"`)) })
	})
	c := r.begin("2025-06-18")
	get := c.stream()
	<-c.listen
	running := c.open(call(1, "slow"))
	eventually(t, "handled", func() bool { return strings.Contains(c.methods(), "tools/call") })
	if err := r.srv.Close(context.Background()); err != nil {
		t.Error(err)
	}
	get.end()
	running.reply().want(t, 200, "cancelled")
	r.do(post1(ping, c.id)).want(t, 503, "shutting down")
	if err := r.srv.Close(context.Background()); err != nil {
		t.Error("second Close:", err)
	}
}

func TestCloseGivesUp(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, ServerConfig{}, func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
		return pending(func() { <-release })
	})
	c := r.begin("2025-06-18")
	running := c.open(call(1, "stuck"))
	eventually(t, "handled", func() bool { return strings.Contains(c.methods(), "tools/call") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.srv.Close(ctx); err != context.Canceled {
		t.Error(err)
	}
	close(release)
	running.reply().want(t, 200, "")
}

func TestLogsShowNoSecrets(t *testing.T) {
	var log strings.Builder
	r := newRig(t, ServerConfig{
		Sessions: 1, Authenticate: bearers("secret"),
		Log: hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: &log}),
	}, nil)
	auth := "Authorization: Bearer secret"
	p := r.do(post1(fmt.Sprintf(initBody, "2025-06-18"), auth))
	id := p.Header.Get(headerSession)
	r.do(post1(ping, "Mcp-Session-Id: guessed", auth)).want(t, 404, "")
	r.do(request("DELETE", "/mcp", "", "Mcp-Session-Id: "+id, auth)).want(t, 204, "")
	if err := r.srv.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	text := log.String()
	if !strings.Contains(text, "session begun") || strings.Contains(text, id) || strings.Contains(text, "secret") || strings.Contains(text, "guessed") {
		t.Error(text)
	}
}

// TestSlowAnswers: the time for a body is not the time for its answer.
func TestSlowAnswers(t *testing.T) {
	large := call(1, strings.Repeat("x", 100_000))
	for name, post := range map[string]struct {
		body    string
		headers []string
	}{
		"body":         {call(1, "a"), nil},
		"large body":   {large, nil},
		"chunked body": {fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(large), large), []string{"Content-Length: -", "Transfer-Encoding: chunked"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBubbleRig(t, ServerConfig{}, func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
					return pending(func() { time.Sleep(50 * time.Minute); to.Answer(result(m, `"done"`)) })
				})
				r.begin("2025-11-25").post(post.body, append(post.headers, "Accept: application/json")...).want(t, 200, `"done"`)
			})
		})
	}
}

func TestSlowClients(t *testing.T) {
	for _, test := range []struct {
		name, raw string
		most      time.Duration
		answer    string // empty: the connection is closed
	}{
		{"headers", "POST /mcp HTTP/1.1\r\nHost: local", 11 * time.Second, ""},
		{"nothing at all", "", 11 * time.Second, ""},
		{"body", post1(ping[:20], "Content-Length: 40"), 11 * time.Second, "too early"},
		{"large body", post1(ping[:20], "Content-Length: 100000"), 46 * time.Second, "too early"},
		{"chunked body", post1("28\r\n"+ping[:20], "Content-Length: -", "Transfer-Encoding: chunked"), 46 * time.Second, "too early"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newBubbleRig(t, ServerConfig{}, nil)
				begun := time.Now()
				rest, err := io.ReadAll(r.connect().send(test.raw))
				if took := time.Since(begun); err != nil || took > test.most || !strings.Contains(string(rest), test.answer) {
					t.Errorf("after %v: %q, %v", took, rest, err)
				}
			})
		})
	}
}
