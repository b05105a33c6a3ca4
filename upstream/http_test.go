//go:build unix

package upstream

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// web is an MCP server over Streamable HTTP whose tools are the faults under
// test. It counts the tool calls that reach it.
type web struct {
	*httptest.Server
	calls  atomic.Int32
	opened atomic.Int32
	push   chan string // goes out on the session's own stream
	told   chan string // notifications and answers that came
	mu     sync.Mutex
	seen   []string      // the headers of each request
	hold   chan struct{} // what "slow" waits for
	guard  func(http.ResponseWriter, *http.Request) bool
}

func newWeb(t *testing.T) *web {
	w := &web{push: make(chan string, 10), told: make(chan string, 100), hold: make(chan struct{})}
	w.Server = httptest.NewServer(w)
	t.Cleanup(func() { w.CloseClientConnections(); w.Close() })
	return w
}

func (w *web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.seen = append(w.seen, r.Method+" "+r.Header.Get("Mcp-Session-Id")+" "+r.Header.Get("Mcp-Protocol-Version")+" "+r.Header.Get("Authorization"))
	w.mu.Unlock()
	if w.guard != nil && !w.guard(rw, r) {
		return
	}
	switch r.Method {
	case http.MethodGet:
		w.stream(rw, r)
	case http.MethodDelete:
		w.told <- "DELETE"
	default:
		raw, _ := io.ReadAll(r.Body)
		m, err := wire.Read(raw, wire.FromUpstream)
		if err != nil {
			http.Error(rw, err.Error(), 400)
			return
		}
		w.post(rw, r, m)
	}
}

func (w *web) stream(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "text/event-stream")
	rw.WriteHeader(200)
	_ = http.NewResponseController(rw).Flush()
	for {
		select {
		case raw := <-w.push:
			fmt.Fprintf(rw, "data: %s\n\n", raw)
			_ = http.NewResponseController(rw).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (w *web) post(rw http.ResponseWriter, r *http.Request, m *wire.Message) {
	id := string(m.Bytes(m.ID))
	switch {
	case m.Kind != wire.Request:
		w.told <- string(m.Raw)
		rw.WriteHeader(http.StatusAccepted)
	case m.Method == "initialize":
		w.opened.Add(1)
		rw.Header().Set("Mcp-Session-Id", fmt.Sprint("session-", w.opened.Load()))
		answerJSON(rw, 200, `{"jsonrpc":"2.0","id":`+id+`,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"w","version":"1"}}}`)
	case m.Method == "tools/list":
		answerJSON(rw, 200, `{"jsonrpc":"2.0","id":`+id+`,"result":{"tools":[{"name":"echo"}]}}`)
	default:
		w.calls.Add(1)
		w.tool(rw, r, m, id)
	}
}

func answerJSON(rw http.ResponseWriter, status int, body string) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_, _ = io.WriteString(rw, body)
}

func answerEvents(rw http.ResponseWriter, messages ...string) {
	rw.Header().Set("Content-Type", "text/event-stream")
	for _, m := range messages {
		fmt.Fprintf(rw, "data: %s\n\n", m)
		_ = http.NewResponseController(rw).Flush()
	}
}

func (w *web) tool(rw http.ResponseWriter, r *http.Request, m *wire.Message, id string) {
	quotedRaw, _ := json.Marshal(string(m.Raw))
	ok := `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":` + string(quotedRaw) + `}]}}`
	switch m.P.Name {
	case "echo":
		answerJSON(rw, 200, ok)
	case "slow":
		answerEvents(rw, `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"begun"}}`)
		select {
		case <-w.hold:
		case <-r.Context().Done():
			w.told <- "closed"
			return
		}
		answerEvents(rw, ok)
	case "stream":
		token := string(m.Bytes(m.P.MetaToken))
		answerEvents(rw,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`+token+`,"progress":1}}`,
			`{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{}}`,
			`{"jsonrpc":"2.0","id":424242,"result":{}}`,
			ok, ok)
	case "batch":
		answerJSON(rw, 200, `[{"jsonrpc":"2.0","method":"notifications/message","params":{}},`+ok+`]`)
	case "other":
		answerJSON(rw, 200, `{"jsonrpc":"2.0","id":424242,"result":{}}`)
	case "unreadable":
		answerJSON(rw, 200, `{"jsonrpc":"2.0","id":`+id+`,"result":{},"error":{}}`)
	case "202":
		rw.WriteHeader(202)
	case "400":
		http.Error(rw, "no", 400)
	case "failure":
		answerJSON(rw, 400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no","data":{"x":1}}}`)
	case "404":
		http.Error(rw, "no", 404)
	case "truncated":
		rw.Header().Set("Content-Length", "500")
		answerJSON(rw, 200, ok)
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	}
}

func (w *web) headers() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.seen, "\n")
}

func TestHTTPBytes(t *testing.T) {
	w := newWeb(t)
	s := newServer(t, Config{URL: w.URL})
	c := dial(t, s, newRecorder())
	if !c.Streams() {
		t.Error("messages come on the stream of their call")
	}
	want := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":2},"arguments":{"n":12345678901234567890}}}`
	if got := textOf(t, mustCall(t, c, "echo")); got != want {
		t.Error(got)
	}
	s.Close()
	contains(t, w.headers(), "POST   \n", "POST session-1 2025-06-18 \n", "DELETE session-1 2025-06-18 ")
	if first, last := <-w.told, <-w.told; first != initializedRaw || last != "DELETE" {
		t.Error(first, last)
	}
}

func TestHTTPStream(t *testing.T) {
	w := newWeb(t)
	s := newServer(t, Config{URL: w.URL})
	r := newRecorder()
	c := dial(t, s, r)
	mustCall(t, c, "stream")
	progress, sampling := <-r.got, <-r.got
	if progress.tag != "stream" || string(progress.Bytes(progress.P.ProgressToken)) != `"tok\u0065n"` {
		t.Error(string(progress.Raw), progress.tag)
	}
	if sampling.Method != "sampling/createMessage" || sampling.tag != "stream" {
		t.Error(string(sampling.Raw), sampling.tag)
	}
	if err := c.Notify(wire.ResultAnswer([]byte(`"s"`), []byte(`{}`))); err != nil {
		t.Error(err)
	}
	<-w.told // initialized
	contains(t, <-w.told, `"id":"s","result":{}`)
	// Another's answer, and the second one, which nobody waits for.
	eventually(t, func() bool { return s.Stats().Stray == 2 })
}

// What comes on the session's own stream belongs to no call, but progress to
// its own.
func TestHTTPOwnStream(t *testing.T) {
	w := newWeb(t)
	r := newRecorder()
	c := dial(t, newServer(t, Config{URL: w.URL}), r)
	k := c.Start(request(t, "slow"), "mine")
	done := make(chan error)
	go func() { _, err := k.Wait(t.Context()); done <- err }()
	r.next(t, "notifications/message")
	w.push <- `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	if m := r.next(t, "notifications/tools/list_changed"); m.tag != nil {
		t.Error(m.tag)
	}
	w.push <- `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}`
	if m := r.next(t, "notifications/progress"); m.tag != "mine" {
		t.Error(m.tag)
	}
	w.push <- `{"jsonrpc":"2.0","id":"p","method":"ping"}`
	<-w.told // initialized
	contains(t, <-w.told, `"id":"p","result":{}`)
	close(w.hold)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestHTTPFailures(t *testing.T) {
	w := newWeb(t)
	c := dial(t, newServer(t, Config{URL: w.URL}), newRecorder())
	for tool, status := range map[string]int{"other": 200, "202": 202, "400": 400, "truncated": 0, "unreadable": 0} {
		before := w.calls.Load()
		_, err := callTool(t, c, tool)
		if e := callError(t, err); !e.Sent || e.Status != status {
			t.Errorf("%s: %+v", tool, e)
		}
		if n := w.calls.Load() - before; n != 1 {
			t.Errorf("%s reached the upstream %d times", tool, n)
		}
	}
	if got := mustCall(t, c, "batch"); !strings.Contains(got, "batch") {
		t.Error(got)
	}
}

// An error without an id is the answer to the request that it came back to, and
// gets its id.
func TestHTTPFailureWithoutID(t *testing.T) {
	c := dial(t, newServer(t, Config{URL: newWeb(t).URL}), newRecorder())
	m, err := c.Start(request(t, "failure"), nil).Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"no","data":{"x":1}}}`; string(m.Raw) != want {
		t.Error(string(m.Raw))
	}
}

// A session that the server has forgotten ends the connection; the next dial
// gets another.
func TestHTTPSessionForgotten(t *testing.T) {
	w := newWeb(t)
	s := newServer(t, Config{URL: w.URL})
	c := dial(t, s, newRecorder())
	_, err := callTool(t, c, "404")
	if e := callError(t, err); !e.Sent || e.Status != 404 {
		t.Errorf("%+v", e)
	}
	<-c.Done()
	if _, err := callTool(t, c, "echo"); callError(t, err).Sent {
		t.Error(err)
	}
	c = dial(t, s, newRecorder())
	mustCall(t, c, "echo")
	contains(t, w.headers(), "session-2")
}

func TestHTTPCancel(t *testing.T) {
	w := newWeb(t)
	r := newRecorder()
	c := dial(t, newServer(t, Config{URL: w.URL}), r)
	<-w.told // initialized
	ctx, cancel := context.WithCancel(t.Context())
	k := c.Start(request(t, "slow"), nil)
	done := make(chan error)
	go func() { _, err := k.Wait(ctx); done <- err }()
	r.next(t, "notifications/message")
	k.Cancel([]byte(`{"requestId":"mine","reason":"bored"}`))
	contains(t, <-w.told, `{"requestId":2,"reason":"bored"}`)
	cancel()
	if err := <-done; !callError(t, err).Sent || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := <-w.told; got != "closed" {
		t.Error("the POST's connection is open:", got)
	}
}

// A call that is cancelled before it was posted never is.
func TestHTTPCancelledBeforeItIsPosted(t *testing.T) {
	w := newWeb(t)
	c := dial(t, newServer(t, Config{URL: w.URL}), newRecorder())
	<-w.told // initialized
	k := c.Start(request(t, "slow"), nil)
	k.Cancel(nil)
	_, err := k.Wait(t.Context())
	if callError(t, err).Sent || w.calls.Load() != 0 {
		t.Errorf("%v, %d calls", err, w.calls.Load())
	}
}

func TestHTTPCloseEndsCalls(t *testing.T) {
	w := newWeb(t)
	r := newRecorder()
	s := newServer(t, Config{URL: w.URL})
	c := dial(t, s, r)
	k := c.Start(request(t, "slow"), nil)
	done := make(chan error)
	go func() { _, err := k.Wait(t.Context()); done <- err }()
	r.next(t, "notifications/message")
	c.Close()
	if err := <-done; !callError(t, err).Sent || !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestHTTPNobodyListens(t *testing.T) {
	w := newWeb(t)
	w.Close()
	s := newServer(t, Config{URL: w.URL, MinBackoff: time.Hour, MaxBackoff: time.Hour})
	_, err := s.Dial(t.Context(), opening(t), newRecorder())
	if e := callError(t, err); e.Sent || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%+v", err)
	}
	_, err = s.Dial(t.Context(), opening(t), newRecorder())
	if e := callError(t, err); e.Sent || e.RetryAfter == 0 {
		t.Errorf("%+v", err)
	}
}

// A server that goes away between calls: the call was not sent, and goes
// through when it is back.
// Who finds no server there is told when to look again; who is turned away is not.
func TestHTTPRetryAfterTellsAwayFromRefused(t *testing.T) {
	w := newWeb(t)
	w.guard = func(rw http.ResponseWriter, _ *http.Request) bool { rw.WriteHeader(401); return false }
	_, err := newServer(t, Config{URL: w.URL}).Dial(t.Context(), opening(t), newRecorder())
	if failed := callError(t, err); failed.RetryAfter != 0 || failed.Status != 401 {
		t.Errorf("refused: %+v", failed)
	}
	url := w.URL
	w.Close()
	_, err = newServer(t, Config{URL: url}).Dial(t.Context(), opening(t), newRecorder())
	if failed := callError(t, err); failed.RetryAfter <= 0 || failed.Sent {
		t.Errorf("away: %+v", failed)
	}
}

func TestHTTPServerAway(t *testing.T) {
	w := newWeb(t)
	s := newServer(t, Config{URL: w.URL})
	c := dial(t, s, newRecorder())
	mustCall(t, c, "echo")
	w.CloseClientConnections()
	w.Listener.Close()
	_, err := callTool(t, c, "echo")
	if e := callError(t, err); e.Sent && w.calls.Load() != 2 {
		t.Errorf("%+v after %d calls", e, w.calls.Load())
	}
}

func TestHTTPBearerFile(t *testing.T) {
	w := newWeb(t)
	path := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	var want atomic.Value // the session's own stream is asked for at its own time
	want.Store("Bearer first")
	w.guard = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != want.Load() {
			http.Error(rw, "no", http.StatusUnauthorized)
			return false
		}
		return true
	}
	c := dial(t, newServer(t, Config{URL: w.URL, BearerFile: path}), newRecorder())
	mustCall(t, c, "echo")
	write("another-one")
	want.Store("Bearer another-one")
	for {
		_, err := callTool(t, c, "echo")
		if err == nil {
			break
		}
		if e := callError(t, err); e.Status != 401 {
			t.Fatal(e)
		}
	}
	contains(t, w.headers(), "Bearer first", "Bearer another-one")
}

// authServer is an authorization server for client credentials.
func authServer(t *testing.T, tokens *atomic.Int32, ttl int) *httptest.Server {
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(rw http.ResponseWriter, _ *http.Request) {
		answerJSON(rw, 200, fmt.Sprintf(`{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":%q,"response_types_supported":["code"]}`, srv.URL, srv.URL+"/a", srv.URL+"/token"))
	})
	mux.HandleFunc("/token", func(rw http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "a b" || id != "me" || secret != "se%2Fcret" || r.FormValue("resource") == "" {
			answerJSON(rw, 400, `{"error":"invalid_client"}`)
			return
		}
		answerJSON(rw, 200, fmt.Sprintf(`{"access_token":"t%d","token_type":"bearer","expires_in":%d}`, tokens.Add(1), ttl))
	})
	t.Cleanup(srv.Close)
	return srv
}

func TestHTTPOAuth(t *testing.T) {
	var tokens atomic.Int32
	as := authServer(t, &tokens, 3600)
	w := newWeb(t)
	var revoked atomic.Bool
	w.guard = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/.well-known/oauth-protected-resource" {
			answerJSON(rw, 200, fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q]}`, w.URL, as.URL))
			return false
		}
		if auth := r.Header.Get("Authorization"); auth == "" || auth == "Bearer t1" && revoked.Load() {
			http.Error(rw, "no", http.StatusUnauthorized)
			return false
		}
		return true
	}
	s := newServer(t, Config{URL: w.URL, OAuth: &OAuth{ClientID: "me", ClientSecret: "se/cret", Scopes: []string{"a", "b"}}})
	c := dial(t, s, newRecorder())
	for range 5 {
		mustCall(t, c, "echo")
	}
	if n := tokens.Load(); n != 1 {
		t.Errorf("%d tokens for one session", n)
	}
	revoked.Store(true)
	if _, err := callTool(t, c, "echo"); callError(t, err).Status != 401 {
		t.Error(err)
	}
	mustCall(t, c, "echo")
	if n := tokens.Load(); n != 2 {
		t.Errorf("%d tokens", n)
	}
	c.Close()
	s.Close()
}

func TestHTTPOAuthExpires(t *testing.T) {
	var tokens atomic.Int32
	as := authServer(t, &tokens, -1)
	w := newWeb(t)
	cfg := Config{URL: w.URL, OAuth: &OAuth{ClientID: "me", ClientSecret: "se/cret", Scopes: []string{"a", "b"}, MetadataURL: as.URL + "/.well-known/oauth-authorization-server"}}
	s := newServer(t, cfg)
	o := s.auth.(*oauth)
	if value, err := o.header(t.Context()); err != nil || value != "Bearer t1" {
		t.Fatal(value, err)
	}
	o.token.ExpiresAt = time.Now().Add(-time.Second)
	if value, err := o.header(t.Context()); err != nil || value != "Bearer t2" {
		t.Fatal(value, err)
	}
}

func TestHTTPOAuthRefused(t *testing.T) {
	var tokens atomic.Int32
	as := authServer(t, &tokens, 3600)
	w := newWeb(t)
	s := newServer(t, Config{URL: w.URL, OAuth: &OAuth{ClientID: "me", ClientSecret: "wrong-one", MetadataURL: as.URL + "/.well-known/oauth-authorization-server"}})
	_, err := s.Dial(t.Context(), opening(t), newRecorder())
	if e := callError(t, err); e.Sent {
		t.Error(e)
	}
	contains(t, err.Error(), "getting a token", "invalid_client")
	if strings.Contains(err.Error(), "wrong-one") || w.opened.Load() != 0 {
		t.Error(err)
	}
}

func TestOAuthSecretNeedsTLS(t *testing.T) {
	for endpoint, want := range map[string]bool{
		"https://as.example/token": true, "http://127.0.0.1:9/token": true, "http://[::1]/t": true, "http://localhost/t": true,
		"http://as.example/token": false, "http://10.0.0.1/t": false, "://": false,
	} {
		if confidential(endpoint) != want {
			t.Error(endpoint)
		}
	}
}

// Over https it is net/http's transport, with HTTP/2 where the server speaks it.
func TestHTTPS(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	t.Setenv("SSL_CERT_FILE", ca) // read at the first handshake of the process
	for _, http2 := range []bool{false, true} {
		w := &web{push: make(chan string), told: make(chan string, 10)}
		w.Server = httptest.NewUnstartedServer(w)
		w.EnableHTTP2 = http2
		w.Config.ErrorLog = log.New(io.Discard, "", 0)
		w.StartTLS()
		t.Cleanup(w.Close)
		cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
		if err := os.WriteFile(ca, cert, 0o600); err != nil {
			t.Fatal(err)
		}
		s := newServer(t, Config{URL: w.URL})
		c := dial(t, s, newRecorder())
		mustCall(t, c, "echo")
		mustCall(t, c, "stream")
		s.Close()
		s = newServer(t, Config{URL: strings.Replace(w.URL, "127.0.0.1", "localhost", 1)})
		_, err := s.Dial(t.Context(), opening(t), newRecorder())
		if e := callError(t, err); e.Sent || !strings.Contains(e.Error(), "certificate") {
			t.Error(e)
		}
	}
}
