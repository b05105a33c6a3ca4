package mcptest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// web is a raw upstream as a server of legacy Streamable HTTP.
type web struct {
	books  books
	server Server
	world  *world
	listen listings

	mu       sync.Mutex // guards all below
	sessions map[string]*webSession
	made     int
}

// webSession is one Mcp-Session-Id: its GET streams, and what waits for one to open.
type webSession struct {
	id      string
	ended   chan struct{}
	streams []chan string
	held    []string
}

// books are where a web keeps count: the test's own Upstream, or the line to it.
type books interface {
	record(Message)
	arrived()
	left()
	gate(name string)
}

func newWeb(server Server, b books) *web {
	return &web{books: b, server: server, world: newWorld(b.gate), sessions: map[string]*webSession{}}
}

func (w *web) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if w.server.Modern {
		w.postModern(out, r)
		return
	}
	switch r.Method {
	case http.MethodPost:
		w.post(out, r)
	case http.MethodGet:
		w.get(out, r)
	case http.MethodDelete:
		w.end(out, r)
	default:
		http.Error(out, "no such method here", http.StatusMethodNotAllowed)
	}
}

func (w *web) post(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m := ParseMessage(body)
	session := w.find(r.Header.Get("Mcp-Session-Id"))
	if m.Method == "initialize" {
		session = w.begin()
		out.Header().Set("Mcp-Session-Id", session.id)
	}
	if session == nil {
		http.Error(out, "no such session", http.StatusNotFound)
		return
	}
	m.Header = r.Header
	w.books.record(m)
	if m.IsResponse() && w.world.answered(m) {
		out.WriteHeader(http.StatusAccepted)
		return
	}
	post := &webPost{web: w, session: session, request: r, out: out, isRequest: m.IsRequest()}
	w.server.Handle(&Exchange{Message: m, Session: session.id, carrier: post, world: w.world})
	post.finish()
}

func (w *web) begin() *webSession {
	w.mu.Lock()
	w.made++
	s := &webSession{id: fmt.Sprintf("raw-session-%d", w.made), ended: make(chan struct{})}
	w.sessions[s.id] = s
	w.mu.Unlock()
	w.books.arrived()
	return s
}

func (w *web) find(id string) *webSession {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessions[id]
}

// get serves a session's GET stream until the client leaves or the session ends.
func (w *web) get(out http.ResponseWriter, r *http.Request) {
	session := w.find(r.Header.Get("Mcp-Session-Id"))
	if session == nil {
		http.Error(out, "no such session", http.StatusNotFound)
		return
	}
	out.Header().Set("Content-Type", "text/event-stream")
	flush(out)
	lines := w.stream(session)
	for {
		select {
		case line := <-lines:
			writeEvent(out, line)
		case <-r.Context().Done():
			w.unstream(session, lines)
			return
		case <-session.ended:
			return
		}
	}
}

// stream opens a stream; what was announced while there was none comes first.
func (w *web) stream(s *webSession) chan string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := make(chan string, 1024)
	for _, line := range s.held {
		lines <- line
	}
	s.held = nil
	s.streams = append(s.streams, lines)
	return lines
}

func (w *web) unstream(s *webSession, lines chan string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.streams = slices.DeleteFunc(s.streams, func(open chan string) bool { return open == lines })
}

func (w *web) announce(s *webSession, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(s.streams) == 0 {
		s.held = append(s.held, line)
		return
	}
	s.streams[0] <- line // one stream gets each message, as the specification demands
}

func (w *web) end(out http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Mcp-Session-Id")
	w.mu.Lock()
	session := w.sessions[id]
	delete(w.sessions, id)
	w.mu.Unlock()
	if session == nil {
		http.Error(out, "no such session", http.StatusNotFound)
		return
	}
	close(session.ended)
	w.books.record(Message{Method: "DELETE", Name: id})
	w.books.left()
	out.WriteHeader(http.StatusNoContent)
}

// webPost is the carrier of one POST.
type webPost struct {
	web       *web
	session   *webSession
	request   *http.Request
	out       http.ResponseWriter
	isRequest bool

	mu        sync.Mutex // guards both below, and writing to out
	streaming bool
	answered  bool
}

func (p *webPost) send(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streamLocked()
	writeEvent(p.out, line)
}

func (p *webPost) answer(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answered && !p.streaming {
		return // a plain body holds one message
	}
	p.answered = true
	if p.streaming {
		writeEvent(p.out, line)
		return
	}
	p.out.Header().Set("Content-Type", "application/json")
	if p.web.server.Modern {
		p.out.WriteHeader(modernStatus(line))
	}
	_, _ = io.WriteString(p.out, line)
}

func (p *webPost) raw(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streamLocked()
	_, _ = io.WriteString(p.out, text)
	flush(p.out)
}

func (p *webPost) status(code int, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered = true
	p.out.WriteHeader(code)
	_, _ = io.WriteString(p.out, body)
}

// truncate promises the whole answer and sends half of it.
func (p *webPost) truncate(answer string) {
	p.out.Header().Set("Content-Type", "application/json")
	p.out.Header().Set("Content-Length", fmt.Sprint(len(answer)))
	_, _ = io.WriteString(p.out, answer[:len(answer)/2])
	flush(p.out)
	p.die()
}

// hang keeps the request open until its client or the test ends it.
func (p *webPost) hang() {
	flush(p.out)
	select {
	case <-p.request.Context().Done():
	case <-p.web.world.ended():
	}
}

func (p *webPost) stderr(string)     {}
func (p *webPost) async(work func()) { work() }
func (p *webPost) die()              { panic(http.ErrAbortHandler) }
func (p *webPost) spawn()            {}

func (p *webPost) announce(line string) {
	if p.web.server.Modern {
		p.web.listen.announce(line)
		return
	}
	p.web.announce(p.session, line)
}

// finish closes what the script left open: a notification or response is accepted.
func (p *webPost) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isRequest && !p.answered && !p.streaming {
		p.out.WriteHeader(http.StatusAccepted)
	}
}

func (p *webPost) streamLocked() {
	if p.streaming {
		return
	}
	p.streaming = true
	p.out.Header().Set("Content-Type", "text/event-stream")
	flush(p.out)
}

func flush(out http.ResponseWriter) {
	_ = http.NewResponseController(out).Flush() // a client that is gone is noticed by its context
}

func writeEvent(out http.ResponseWriter, line string) {
	_, _ = fmt.Fprintf(out, "event: message\ndata: %s\n\n", strings.ReplaceAll(line, "\n", "\ndata: "))
	flush(out)
}

// postModern serves one request of the modern era, in which a server knows POST alone.
func (w *web) postModern(out http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(out, "no such method here", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m := ParseMessage(body)
	m.Header = r.Header
	w.books.record(m)
	if code, text := modernFault(m, r.Header); code != 0 {
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(out, Failure(m.ID, code, text))
		return
	}
	post := &webPost{web: w, request: r, out: out, isRequest: m.IsRequest()}
	stop := context.AfterFunc(r.Context(), func() { post.left(m) })
	defer func() {
		if stop() && r.Context().Err() != nil { // the end of the stream was seen here before it was seen there
			post.left(m)
		}
	}()
	if m.Method == "subscriptions/listen" {
		w.subscribe(post, m)
		return
	}
	w.server.Handle(&Exchange{Message: m, Modern: true, carrier: post, world: w.world})
	post.finish()
}

// left counts a response stream that its client has closed before the answer.
func (p *webPost) left(m Message) {
	p.mu.Lock()
	answered := p.answered
	p.mu.Unlock()
	if !answered {
		p.web.books.record(Message{Method: "notifications/cancelled", Params: []byte(`{"requestId":` + string(m.ID) + `}`)})
	}
}

// subscribe keeps a stream of notifications open until its client leaves, or the test ends.
func (w *web) subscribe(post *webPost, m Message) {
	w.books.arrived()
	defer w.books.left()
	id := w.listen.begin(m, post.send)
	defer w.listen.end(id)
	select {
	case <-post.request.Context().Done():
	case <-w.world.ended():
	}
}
