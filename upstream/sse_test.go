//go:build unix

package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// oldWeb is a server over the old HTTP+SSE transport.
type oldWeb struct {
	*httptest.Server
	out      chan string // messages for the stream; "" ends it
	told     chan string // notifications and answers that came
	posts    atomic.Int32
	endpoint string
	refuse   atomic.Int32 // status of POSTs, 0 for none
}

func newOldWeb(t *testing.T) *oldWeb {
	w := &oldWeb{out: make(chan string, 100), told: make(chan string, 100), endpoint: "/messages?session=secret"}
	w.Server = httptest.NewServer(w)
	t.Cleanup(func() { w.CloseClientConnections(); w.Close() })
	return w
}

func (w *oldWeb) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.stream(rw, r)
		return
	}
	w.posts.Add(1)
	raw, _ := io.ReadAll(r.Body)
	if status := w.refuse.Load(); status != 0 {
		rw.WriteHeader(int(status))
		return
	}
	if r.URL.RequestURI() != "/messages?session=secret" || r.Header.Get("X-Extra") != "yes" {
		rw.WriteHeader(http.StatusTeapot)
		return
	}
	rw.WriteHeader(http.StatusAccepted)
	w.take(string(raw))
}

func (w *oldWeb) stream(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(rw, "event: endpoint\ndata: %s\n\n", w.endpoint)
	_ = http.NewResponseController(rw).Flush()
	for {
		select {
		case raw := <-w.out:
			if raw == "" {
				return
			}
			fmt.Fprintf(rw, "event: message\r\ndata: %s\r\n\r\n", raw)
			_ = http.NewResponseController(rw).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (w *oldWeb) take(raw string) {
	m, err := wire.Read([]byte(raw), wire.FromUpstream)
	if err != nil {
		return
	}
	id := string(m.Bytes(m.ID))
	switch {
	case m.Kind != wire.Request:
		w.told <- raw
	case m.Method == "initialize":
		w.out <- `{"jsonrpc":"2.0","id":` + id + `,"result":{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"o","version":"1"}}}`
	case m.P.Name == "echo":
		w.out <- `{"jsonrpc":"2.0", "id":` + id + `,"result":{"content":[{"type":"text","text":` + string(quoted([]byte(raw))) + `}],"big":12345678901234567890,"<&>":null}}`
	case m.P.Name == "ask":
		w.out <- `{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"big":12345678901234567890}}`
		w.out <- `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(m.Bytes(m.P.MetaToken)) + `,"progress":1}}`
		w.out <- `{"jsonrpc":"2.0","id":` + id + `,"result":{}}`
	}
}

func dialOld(t *testing.T, w *oldWeb) (*Conn, *recorder, *Server) {
	t.Helper()
	s := newServer(t, Config{URL: w.URL + "/sse", SSE: true, Header: http.Header{"X-Extra": {"yes"}}})
	r := newRecorder()
	return dial(t, s, r), r, s
}

// The bytes are those of a direct connection, both ways, though mcp-go's
// transport carries them.
func TestSSEBytes(t *testing.T) {
	w := newOldWeb(t)
	c, _, _ := dialOld(t, w)
	if c.Streams() {
		t.Error("there is one stream for all")
	}
	m, err := c.Start(request(t, "echo"), nil).Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(m.Raw), `{"jsonrpc":"2.0", "id":2,`, `"big":12345678901234567890,"<&>":null`,
		`{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"_meta\":{\"progressToken\":2},\"arguments\":{\"n\":12345678901234567890}}}`)
	if got := <-w.told; got != initializedRaw {
		t.Error(got)
	}
}

// The server's requests arrive, and so do the answers to them.
func TestSSEServerRequests(t *testing.T) {
	w := newOldWeb(t)
	c, r, _ := dialOld(t, w)
	if got := mustCall(t, c, "ask"); got != "{}" {
		t.Error(got)
	}
	sampling, progress := <-r.got, <-r.got
	contains(t, string(sampling.Raw), `{"big":12345678901234567890}`)
	if progress.tag != "ask" || string(progress.Bytes(progress.P.ProgressToken)) != `"tok\u0065n"` {
		t.Error(string(progress.Raw), progress.tag)
	}
	answer := `{"jsonrpc":"2.0","id":"q","result":{"a":"<>"}}`
	if err := c.Notify([]byte(answer)); err != nil {
		t.Fatal(err)
	}
	<-w.told
	if got := <-w.told; got != answer {
		t.Error(got)
	}
}

func TestSSEStreamEnds(t *testing.T) {
	w := newOldWeb(t)
	c, _, _ := dialOld(t, w)
	k := c.Start(request(t, "silent"), nil)
	w.out <- ""
	if _, err := k.Wait(t.Context()); !callError(t, err).Sent {
		t.Error(err)
	}
	<-c.Done()
	contains(t, c.Err().Error(), "event stream ended")
}

func TestSSERefusedPost(t *testing.T) {
	w := newOldWeb(t)
	c, _, _ := dialOld(t, w)
	<-w.told
	w.refuse.Store(503)
	_, err := callTool(t, c, "echo")
	if e := callError(t, err); !e.Sent || e.Status != 503 {
		t.Errorf("%+v", e)
	}
	if n := w.posts.Load(); n != 3 {
		t.Error("posts:", n)
	}
}

func TestSSENobodyListens(t *testing.T) {
	w := newOldWeb(t)
	w.Close()
	_, err := newServer(t, Config{URL: w.URL, SSE: true}).Dial(t.Context(), opening(t), newRecorder())
	if e := callError(t, err); e.Sent || !strings.Contains(e.Error(), "refused") {
		t.Errorf("%+v", e)
	}
}

// An endpoint on another host is not taken, and no message goes there.
func TestSSEForeignEndpoint(t *testing.T) {
	other, w := newOldWeb(t), newOldWeb(t)
	w.endpoint = other.URL + "/messages"
	s := newServer(t, Config{URL: w.URL, SSE: true, DialTimeout: 1e9})
	if _, err := s.Dial(t.Context(), opening(t), newRecorder()); err == nil || other.posts.Load() != 0 {
		t.Error(err, other.posts.Load())
	}
}

func TestSSERedirectElsewhere(t *testing.T) {
	w := newOldWeb(t)
	moved := httptest.NewServer(http.RedirectHandler(w.URL, http.StatusTemporaryRedirect))
	defer moved.Close()
	_, err := newServer(t, Config{URL: moved.URL, SSE: true}).Dial(t.Context(), opening(t), newRecorder())
	if err == nil || !strings.Contains(err.Error(), "another host") {
		t.Error(err)
	}
}

func TestSSEClose(t *testing.T) {
	w := newOldWeb(t)
	c, _, s := dialOld(t, w)
	k := c.Start(request(t, "silent"), nil)
	s.Close()
	if _, err := k.Wait(t.Context()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := c.Notify([]byte(initializedRaw)); err == nil {
		t.Error("taken after Close")
	}
}

func TestSSEDialCancelled(t *testing.T) {
	asked := make(chan struct{})
	mute := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	defer mute.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := newServer(t, Config{URL: mute.URL, SSE: true}).Dial(ctx, opening(t), newRecorder()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
