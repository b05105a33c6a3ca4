//go:build unix

package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

const (
	modernMeta  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"sampling":{}}}`
	discoverRaw = `{"jsonrpc":"2.0","id":"client-1","method":"server/discover","params":{` + modernMeta + `}}`
	discovered  = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"ttlMs":0,"cacheScope":"private"}`
)

// eras is the opening of a client of both eras.
func eras(t testing.TB, prefer wire.Era) Opening {
	t.Helper()
	return Opening{Initialize: read(t, initializeRaw), Discover: read(t, discoverRaw), Prefer: prefer}
}

// modernRequest is a request as a modern client sends it.
func modernRequest(t testing.TB, method, params string) *wire.Message {
	t.Helper()
	if params != "" {
		params += ","
	}
	return read(t, `{"jsonrpc":"2.0","id":"mine","method":"`+method+`","params":{`+params+modernMeta+`}}`)
}

// dialEra connects, and expects an era of the upstream.
func dialEra(t testing.TB, s *Server, with Opening, r wire.Receiver, want wire.Era) *Conn {
	t.Helper()
	c, err := s.Dial(t.Context(), with, r)
	if err != nil {
		t.Fatal(err)
	}
	if c.Era() != want {
		t.Fatalf("the connection is %s", c.Era())
	}
	return c
}

// modernWeb is an MCP server of the modern era over HTTP. Methods that answer does
// not know are unknown.
type modernWeb struct {
	*httptest.Server

	mu     sync.Mutex
	answer map[string]answering
	seen   []string // the requests: method, headers that repeat the body, session
}

type answering func(http.ResponseWriter, *http.Request, *wire.Message)

// on has a method answered from now on.
func (w *modernWeb) on(method string, f answering) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer[method] = f
}

func newModernWeb(t *testing.T) *modernWeb {
	w := &modernWeb{answer: make(map[string]answering)}
	w.results("server/discover", discovered)
	w.results("tools/list", `{"resultType":"complete","tools":[{"name":"echo"}],"ttlMs":0,"cacheScope":"private"}`)
	w.on("tools/call", func(rw http.ResponseWriter, r *http.Request, m *wire.Message) {
		answerJSON(rw, 200, string(wire.ResultAnswer(m.Bytes(m.ID), fmt.Appendf(nil, `{"resultType":"complete","content":[{"type":"text","text":%s}]}`, quoted(m.Raw)))))
	})
	w.Server = httptest.NewServer(w)
	t.Cleanup(func() { w.CloseClientConnections(); w.Close() })
	return w
}

// results has a method answered with a result.
func (w *modernWeb) results(method, result string) {
	w.on(method, func(rw http.ResponseWriter, _ *http.Request, m *wire.Message) {
		answerJSON(rw, 200, string(wire.ResultAnswer(m.Bytes(m.ID), []byte(result))))
	})
}

// fails has a method answered with an error.
func (w *modernWeb) fails(method string, status, code int, data string) {
	raw := []byte(data)
	if data == "" {
		raw = nil
	}
	w.on(method, func(rw http.ResponseWriter, _ *http.Request, m *wire.Message) {
		answerJSON(rw, status, string(wire.ErrorAnswer(m.Bytes(m.ID), code, "no", raw)))
	})
}

func (w *modernWeb) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	m, err := wire.Read(raw, wire.FromUpstream)
	if err != nil {
		m = &wire.Message{}
	}
	line := []string{r.Method, m.Method}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range r.Header {
			if !yield(name) {
				return
			}
		}
	}) {
		if strings.HasPrefix(name, "Mcp-") || name == "Last-Event-Id" {
			line = append(line, name+"="+r.Header.Get(name))
		}
	}
	w.mu.Lock()
	w.seen = append(w.seen, strings.Join(line, " "))
	answer := w.answer[m.Method]
	w.mu.Unlock()
	if answer != nil {
		answer(rw, r, m)
		return
	}
	answerJSON(rw, http.StatusNotFound, string(wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeMethodNotFound, "unknown", nil)))
}

// requests are those that came, in order.
func (w *modernWeb) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// count is how many requests of a method came.
func (w *modernWeb) count(method string) (n int) {
	for _, line := range w.requests() {
		if strings.Fields(line)[1] == method {
			n++
		}
	}
	return n
}

// TestModernHeaders repeat what the body says, and nothing of sessions.
func TestModernHeaders(t *testing.T) {
	w := newModernWeb(t)
	w.results("resources/read", `{"resultType":"complete","contents":[]}`)
	c := dialEra(t, newServer(t, Config{URL: w.URL}), eras(t, wire.Modern), newRecorder(), wire.Modern)
	for _, m := range []*wire.Message{
		modernRequest(t, "tools/call", `"name":"echo"`),
		modernRequest(t, "tools/call", `"name":"größe"`),
		modernRequest(t, "resources/read", `"uri":"file:///a b"`),
	} {
		if answer, err := c.Start(m, nil).Wait(t.Context()); err != nil || answer.Kind != wire.Result {
			t.Fatal(err)
		}
	}
	if !strings.Contains(string(c.Hello().Raw), "supportedVersions") {
		t.Error("the answer to server/discover is not kept")
	}
	c.Close()
	want := []string{
		"POST server/discover Mcp-Method=server/discover Mcp-Protocol-Version=2026-07-28",
		"POST tools/list Mcp-Method=tools/list Mcp-Protocol-Version=2026-07-28",
		"POST tools/call Mcp-Method=tools/call Mcp-Name=echo Mcp-Protocol-Version=2026-07-28",
		"POST tools/call Mcp-Method=tools/call Mcp-Name==?base64?Z3LDtsOfZQ==?= Mcp-Protocol-Version=2026-07-28",
		"POST resources/read Mcp-Method=resources/read Mcp-Name=file:///a b Mcp-Protocol-Version=2026-07-28",
	}
	got := slices.DeleteFunc(w.requests(), func(line string) bool { return strings.Contains(line, "subscriptions/listen") })
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestModernList carries _meta in each of its requests.
func TestModernList(t *testing.T) {
	w := newModernWeb(t)
	pages := 0
	w.on("tools/list", func(rw http.ResponseWriter, _ *http.Request, m *wire.Message) {
		pages++
		if m.Era() != wire.Modern || string(m.Bytes(m.P.Modern.Capabilities)) != `{"sampling":{}}` || m.P.Cursor != []string{"", "two"}[pages-1] {
			t.Error(string(m.Raw))
		}
		answerJSON(rw, 200, string(wire.ResultAnswer(m.Bytes(m.ID), []byte([]string{`{"tools":[{"name":"a"}],"nextCursor":"two"}`, `{"tools":[{"name":"b"}]}`}[pages-1]))))
	})
	c := dialEra(t, newServer(t, Config{URL: w.URL}), eras(t, wire.Modern), newRecorder(), wire.Modern)
	l, err := c.List(t.Context(), wire.Tools)
	if err != nil || len(l.Items) != 2 {
		t.Error(l, err)
	}
}

// TestEraOverHTTP finds out what a server speaks, whichever is asked for first.
func TestEraOverHTTP(t *testing.T) {
	legacy := `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"w","version":"1"}}`
	status := func(status int) func(*modernWeb, string) {
		return func(w *modernWeb, method string) {
			w.on(method, func(rw http.ResponseWriter, _ *http.Request, _ *wire.Message) { rw.WriteHeader(status) })
		}
	}
	failure := func(status, code int, data string) func(*modernWeb, string) {
		return func(w *modernWeb, method string) { w.fails(method, status, code, data) }
	}
	result := func(result string) func(*modernWeb, string) {
		return func(w *modernWeb, method string) { w.results(method, result) }
	}
	for name, test := range map[string]struct {
		discover, initialize func(*modernWeb, string)
		prefer, want         wire.Era
		refused              int // the code of the error; 0: it is answered
	}{
		"both, modern first":                    {result(discovered), result(legacy), wire.Modern, wire.Modern, 0},
		"both, legacy first":                    {result(discovered), result(legacy), wire.Legacy, wire.Legacy, 0},
		"400 without a body":                    {status(400), result(legacy), wire.Modern, wire.Legacy, 0},
		"404 without a body":                    {status(404), result(legacy), wire.Modern, wire.Legacy, 0},
		"500":                                   {status(500), result(legacy), wire.Modern, wire.Legacy, 0},
		"method not found":                      {failure(200, -32601, ""), result(legacy), wire.Modern, wire.Legacy, 0},
		"not initialized":                       {failure(400, -32000, ""), result(legacy), wire.Modern, wire.Legacy, 0},
		"sessions only":                         {failure(400, -32022, `{"supported":["2025-11-25"]}`), result(legacy), wire.Modern, wire.Legacy, 0},
		"discover names legacy revisions only":  {result(`{"supportedVersions":["2025-11-25"]}`), result(legacy), wire.Modern, wire.Legacy, 0},
		"discover is answered with nothing":     {result(`{}`), result(legacy), wire.Modern, wire.Legacy, 0},
		"modern only: method not found":         {result(discovered), failure(404, -32601, ""), wire.Legacy, wire.Modern, 0},
		"modern only: no _meta":                 {result(discovered), failure(400, -32602, ""), wire.Legacy, wire.Modern, 0},
		"modern only: headers":                  {result(discovered), failure(400, -32020, ""), wire.Legacy, wire.Modern, 0},
		"modern only: version":                  {result(discovered), failure(400, -32022, `{"supported":["2026-07-28"]}`), wire.Legacy, wire.Modern, 0},
		"modern only: 400 without a body":       {result(discovered), status(400), wire.Legacy, wire.Modern, 0},
		"initialize is refused":                 {status(400), failure(200, -32602, ""), wire.Legacy, wire.Legacy, -32602},
		"initialize is refused, modern first":   {status(400), failure(200, -32602, ""), wire.Modern, wire.Legacy, -32602},
		"initialize is refused for good":        {result(discovered), failure(200, -32000, ""), wire.Legacy, wire.Legacy, -32000},
		"the client lacks a capability":         {failure(400, -32021, ""), result(legacy), wire.Modern, wire.Modern, -32021},
		"no revision that both know":            {failure(400, -32022, `{"supported":["2030-01-01"]}`), result(legacy), wire.Modern, wire.Modern, -32022},
		"neither, and initialize has been told": {failure(400, -32022, `{"supported":["2030-01-01"]}`), failure(400, -32602, ""), wire.Legacy, wire.Modern, -32602},
	} {
		t.Run(name, func(t *testing.T) {
			w := newModernWeb(t)
			test.discover(w, "server/discover")
			test.initialize(w, "initialize")
			s := newServer(t, Config{URL: w.URL})
			if test.refused == 0 {
				dialEra(t, s, eras(t, test.prefer), newRecorder(), test.want)
				return
			}
			_, err := s.Dial(t.Context(), eras(t, test.prefer), newRecorder())
			if refused, ok := errors.AsType[*InitializeError](err); !ok || refused.Answer.ErrorCode != test.refused {
				t.Error(err)
			}
		})
	}
}

// TestEraIsRemembered and asked for again where it no longer holds.
func TestEraIsRemembered(t *testing.T) {
	w := newModernWeb(t)
	legacy := `{"protocolVersion":"2025-11-25","capabilities":{}}`
	w.fails("server/discover", 400, -32601, "")
	w.results("initialize", legacy)
	s := newServer(t, Config{URL: w.URL})
	for range 3 {
		dialEra(t, s, eras(t, wire.Modern), newRecorder(), wire.Legacy)
	}
	if n := w.count("server/discover"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	w.results("server/discover", discovered)
	w.fails("initialize", 404, -32601, "")
	for range 2 {
		dialEra(t, s, eras(t, wire.Modern), newRecorder(), wire.Modern)
	}
	if n := w.count("initialize"); n != 4 {
		t.Errorf("initialized %d times", n)
	}
}

// TestDiscoverUnansweredOverHTTP is a legacy server's silence.
func TestDiscoverUnansweredOverHTTP(t *testing.T) {
	w := newModernWeb(t)
	w.on("server/discover", func(_ http.ResponseWriter, r *http.Request, _ *wire.Message) { <-r.Context().Done() })
	w.results("initialize", `{"protocolVersion":"2025-11-25","capabilities":{}}`)
	dialEra(t, newServer(t, Config{URL: w.URL, ProbeTimeout: 50 * time.Millisecond}), eras(t, wire.Modern), newRecorder(), wire.Legacy)
}

// TestModernOnlyOpening has nothing to fall back to.
func TestModernOnlyOpening(t *testing.T) {
	w := newModernWeb(t)
	w.fails("server/discover", 400, -32601, "")
	_, err := newServer(t, Config{URL: w.URL}).Dial(t.Context(), Opening{Discover: read(t, discoverRaw)}, newRecorder())
	if refused, ok := errors.AsType[*InitializeError](err); !ok || refused.Answer.ErrorCode != -32601 {
		t.Error(err)
	}
	w.on("server/discover", func(rw http.ResponseWriter, _ *http.Request, _ *wire.Message) { rw.WriteHeader(503) })
	_, err = newServer(t, Config{URL: w.URL}).Dial(t.Context(), Opening{Discover: read(t, discoverRaw)}, newRecorder())
	if e := callError(t, err); e.Sent || e.Status != 503 || e.RetryAfter == 0 {
		t.Error(e)
	}
}

// TestModernCancel closes the stream of its call, and of no other.
func TestModernCancel(t *testing.T) {
	w := newModernWeb(t)
	arrived, ended := make(chan struct{}, 2), make(chan string, 2)
	release := make(chan struct{})
	w.on("tools/call", func(rw http.ResponseWriter, r *http.Request, m *wire.Message) {
		rw.Header().Set("Content-Type", "text/event-stream")
		rw.WriteHeader(200)
		_ = http.NewResponseController(rw).Flush()
		arrived <- struct{}{}
		select {
		case <-r.Context().Done():
			ended <- m.P.Name
		case <-release:
			fmt.Fprintf(rw, "data: %s\n\n", wire.ResultAnswer(m.Bytes(m.ID), []byte("{}")))
		}
	})
	c := dialEra(t, newServer(t, Config{URL: w.URL}), eras(t, wire.Modern), newRecorder(), wire.Modern)
	outcomes := make(map[string]chan error)
	calls := make(map[string]wire.Call)
	for _, name := range []string{"off", "on"} {
		call, done := c.Start(modernRequest(t, "tools/call", `"name":"`+name+`"`), name), make(chan error, 1)
		calls[name], outcomes[name] = call, done
		go func() { _, err := call.Wait(context.Background()); done <- err }()
		<-arrived
	}
	calls["off"].Cancel([]byte(`{"requestId":"mine","reason":"enough"}`))
	if e := callError(t, <-outcomes["off"]); !e.Sent || !errors.Is(e, context.Canceled) {
		t.Error(e)
	}
	if name := <-ended; name != "off" {
		t.Error(name, "was cancelled")
	}
	close(release)
	if err := <-outcomes["on"]; err != nil {
		t.Error(err)
	}
	if n := w.count("notifications/cancelled"); n != 0 {
		t.Error("a notification was posted")
	}
}

// TestModernStreamIsNotResumed whatever ids its events have.
func TestModernStreamIsNotResumed(t *testing.T) {
	w := newModernWeb(t)
	w.on("tools/call", func(rw http.ResponseWriter, _ *http.Request, _ *wire.Message) {
		rw.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(rw, "id: 7\nretry: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n")
	})
	r := newRecorder()
	c := dialEra(t, newServer(t, Config{URL: w.URL}), eras(t, wire.Modern), r, wire.Modern)
	_, err := c.Start(modernRequest(t, "tools/call", `"name":"x"`), "tag").Wait(t.Context())
	if e := callError(t, err); !e.Sent {
		t.Error(e)
	}
	if note := r.next(t, "notifications/message"); note.tag != "tag" {
		t.Error(note.tag)
	}
	for _, line := range w.requests() {
		if !strings.HasPrefix(line, "POST ") || strings.Contains(line, "Last-Event-Id") {
			t.Error(line)
		}
	}
}

// serveEras is a stdio server that speaks the modern era: "modern" both of them,
// "slow" after a while, "modern-only" no other, "late" no other after a while, "hasty" none, and
// ends if the first message is not initialize.
func serveEras(role string) {
	lines := bufio.NewReader(os.Stdin)
	if role == "late" || role == "slow" {
		<-time.After(300 * time.Millisecond)
	}
	for first := true; ; first = false {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		m, err := wire.Read(line[:len(line)-1], wire.FromUpstream)
		if err != nil {
			continue
		}
		if role == "hasty" && first && m.Method != "initialize" {
			fmt.Fprintln(os.Stderr, "expected initialize")
			os.Exit(1)
		}
		respondInEras(role, m)
	}
}

// TestSlowServerOfBothEras is given more time when it is started anew.
func TestSlowServerOfBothEras(t *testing.T) {
	cfg := child("slow")
	cfg.ProbeTimeout = 150 * time.Millisecond
	s := newServer(t, cfg)
	dialEra(t, s, eras(t, wire.Modern), newRecorder(), wire.Legacy)
	dialEra(t, s, eras(t, wire.Modern), newRecorder(), wire.Modern)
}

func respondInEras(role string, m *wire.Message) {
	id := m.Bytes(m.ID)
	switch {
	case m.Method == "server/discover":
		say("%s", wire.ResultAnswer(id, []byte(discovered)))
	case m.Method == "initialize" && (role == "modern" || role == "hasty" || role == "slow"):
		say("%s", wire.ResultAnswer(id, []byte(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`)))
	case m.Method == "initialize":
		say("%s", wire.ErrorAnswer(id, wire.CodeMethodNotFound, "no such method", nil))
	case m.Method == "subscriptions/listen":
		subscribed = string(id)
		tell("notifications/subscriptions/acknowledged", `,"notifications":`+string(m.Bytes(m.P.Notifications)))
	case m.Method == "notifications/cancelled" && string(m.Bytes(m.P.RequestID)) == subscribed:
		say("%s", wire.ResultAnswer([]byte(subscribed), []byte("{}")))
	case m.P.Name == "change":
		tell("notifications/tools/list_changed", "")
		result(id, "")
	case m.P.Name == "update":
		tell("notifications/resources/updated", `,"uri":"file:///a"`)
		result(id, "")
	case m.P.Name == "end":
		say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, subscribed)
		result(id, "")
	default:
		respond(m, 0)
	}
}

// subscribed is the id of what serveEras tells by.
var subscribed string

func tell(method, params string) {
	say(`{"jsonrpc":"2.0","method":"%s","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}%s}}`, method, subscribed, params)
}

func TestEraOverStdio(t *testing.T) {
	for name, test := range map[string]struct {
		role         string
		prefer, want wire.Era
	}{
		"both, modern first":            {"modern", wire.Modern, wire.Modern},
		"both, legacy first":            {"modern", wire.Legacy, wire.Legacy},
		"modern only, legacy first":     {"modern-only", wire.Legacy, wire.Modern},
		"silent, modern first":          {"server", wire.Modern, wire.Legacy},
		"ends on anything else":         {"hasty", wire.Modern, wire.Legacy},
		"modern only, but slow to come": {"late", wire.Modern, wire.Modern},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := child(test.role)
			cfg.ProbeTimeout = 50 * time.Millisecond
			if test.want == wire.Modern && test.role != "late" {
				cfg.ProbeTimeout = 0
			}
			s := newServer(t, cfg)
			c := dialEra(t, s, eras(t, test.prefer), newRecorder(), test.want)
			m := request(t, "echo")
			if test.want == wire.Modern {
				m = modernRequest(t, "tools/call", `"name":"echo"`)
			}
			if answer, err := c.Start(m, nil).Wait(t.Context()); err != nil || answer.Kind != wire.Result {
				t.Error(answer, err)
			}
			if n := s.Children(); n != 1 {
				t.Errorf("%d children", n)
			}
		})
	}
}

// TestModernCancelOverStdio is a notification, as there is no stream to close.
func TestModernCancelOverStdio(t *testing.T) {
	r := newRecorder()
	c := dialEra(t, newServer(t, child("modern")), eras(t, wire.Modern), r, wire.Modern)
	call := c.Start(modernRequest(t, "tools/call", `"name":"silent"`), nil)
	call.Cancel(nil)
	r.next(t, "notifications/message") // it has begun
	told := r.next(t, "notifications/message")
	contains(t, string(told.Raw), `notifications/cancelled`, `requestId`)
}
