package mcptest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// Web is a raw client of Streamable HTTP. Its fields may be set before the first message. It is safe for
// concurrent use after that.
type Web struct {
	URL     string
	Header  http.Header // sent with every request
	Accept  string      // default: JSON and event streams
	Version string      // MCP-Protocol-Version after initialize; default 2025-11-25

	t       testing.TB
	client  *http.Client
	session *Session
	running sync.WaitGroup
	context context.Context
	cancel  context.CancelFunc

	mu sync.Mutex // guards id
	id string     // Mcp-Session-Id
}

// Response is what one HTTP request was answered with.
type Response struct {
	Status   int
	Header   http.Header
	Body     []byte    // all bytes of the body, events included
	Messages []Message // the messages in the body, whether JSON or events
	Err      error     // of reading the body: a truncated answer
}

// DialWeb returns a raw client of an HTTP endpoint; at an https one it trusts what WriteTLS has signed, and
// speaks HTTP/2 where that is offered. Nothing is sent yet. The GET stream is opened by Listen.
func DialWeb(t testing.TB, url string) (*Session, *Web) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &Web{
		URL: url, Header: http.Header{}, Accept: "application/json, text/event-stream", Version: "2025-11-25",
		t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, TLSClientConfig: TrustTLS(), ForceAttemptHTTP2: true}}, context: ctx, cancel: cancel,
	}
	w.session = newSession(t)
	w.session.line = w
	t.Cleanup(func() {
		cancel()
		w.running.Wait()
		w.client.CloseIdleConnections()
	})
	return w.session, w
}

// Present has the client show a certificate, on connections that it makes from now on.
func (w *Web) Present(certificate tls.Certificate) {
	transport := w.client.Transport.(*http.Transport)
	transport.TLSClientConfig.Certificates = []tls.Certificate{certificate}
}

// ID returns the session id that the server gave.
func (w *Web) ID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.id
}

// SetID takes a session id that the server did not give to this client.
func (w *Web) SetID(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.id = id
}

// send posts one message. A request's POST runs beside the caller, so that several may be open; all others
// have been answered when send returns, so that their order is the caller's.
func (w *Web) send(text string) {
	if m := ParseMessage([]byte(text)); m.IsRequest() && m.Method != "initialize" {
		w.running.Go(func() { w.Post(w.context, text) })
		return
	}
	if r := w.Post(w.context, text); r.Err != nil {
		w.t.Logf("posting %.60s: %v", text, r.Err) // whose answer somebody now waits for in vain
	}
}

func (w *Web) open(text string) (leave func()) {
	ctx, leave := context.WithCancel(w.context)
	w.running.Go(func() { w.Post(ctx, text) })
	return leave
}

// Post sends a body and reads the whole answer. Its messages go to the session's inbox as they arrive.
func (w *Web) Post(ctx context.Context, body string) Response {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, strings.NewReader(body))
	if err != nil {
		return Response{Err: err}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", w.Accept)
	if m := ParseMessage([]byte(body)); w.session.modern != nil && m.IsModern() {
		modernHeader(request.Header, m)
	}
	return w.Do(request)
}

// Do sends a request with the session's headers and reads the whole answer.
func (w *Web) Do(request *http.Request) Response {
	w.decorate(request)
	answer, err := w.client.Do(request)
	if err != nil {
		return Response{Err: err}
	}
	defer answer.Body.Close()
	if id := answer.Header.Get("Mcp-Session-Id"); id != "" {
		w.SetID(id)
	}
	r := Response{Status: answer.StatusCode, Header: answer.Header}
	w.read(answer, &r)
	return r
}

func (w *Web) decorate(request *http.Request) {
	if id := w.ID(); id != "" {
		request.Header.Set("Mcp-Session-Id", id)
		request.Header.Set("MCP-Protocol-Version", w.Version)
	}
	for name, values := range w.Header {
		request.Header[name] = values
		if name == "Host" {
			request.Host = values[0]
		}
	}
}

// read takes the body apart as it arrives.
func (w *Web) read(answer *http.Response, r *Response) {
	var all bytes.Buffer
	body := io.TeeReader(answer.Body, &all)
	arrived := func(raw []byte) {
		m := ParseMessage(raw)
		r.Messages = append(r.Messages, m)
		w.session.deliver(m)
	}
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		r.Err = readEvents(body, arrived)
	} else {
		var raw []byte
		if raw, r.Err = io.ReadAll(body); len(raw) > 0 && raw[0] == '{' {
			arrived(raw)
		}
	}
	r.Body = all.Bytes()
}

// readEvents calls arrived with the data of each event. Events without data, which only carry an id, are
// passed over.
func readEvents(body io.Reader, arrived func([]byte)) error {
	lines := bufio.NewReader(body)
	var data []string
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		if text, ok := strings.CutPrefix(line, "data:"); ok {
			data = append(data, strings.TrimPrefix(text, " "))
		}
		if line == "" && len(data) > 0 {
			if raw := strings.Join(data, "\n"); raw != "" {
				arrived([]byte(raw))
			}
			data = nil
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Listen opens the GET stream and returns when the server has accepted it. What arrives goes to the
// session's inbox. Stop ends the stream from the client's side.
func (w *Web) Listen() (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.context)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL, nil)
	if err != nil {
		w.t.Fatalf("opening the GET stream: %v", err)
	}
	request.Header.Set("Accept", "text/event-stream")
	w.decorate(request)
	answer, err := w.client.Do(request)
	if err != nil {
		w.t.Fatalf("opening the GET stream: %v", err)
	}
	if answer.StatusCode != http.StatusOK {
		w.t.Fatalf("opening the GET stream: HTTP %s", answer.Status)
	}
	w.running.Go(func() {
		defer answer.Body.Close()
		w.read(answer, &Response{})
	})
	return cancel
}

// Delete ends the session at the server and returns the HTTP status, 0 when there was no answer.
func (w *Web) Delete() int {
	request, err := http.NewRequestWithContext(w.context, http.MethodDelete, w.URL, nil)
	if err != nil {
		return 0
	}
	return w.Do(request).Status
}

func (w *Web) close() {
	w.Delete()
	w.cancel()
	w.running.Wait()
}
