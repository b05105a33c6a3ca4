package mcptest

import (
	"context"
	"io"
	"net/http"
)

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
	ended := make(chan struct{})
	go func() {
		w.books.gate(endGate)
		close(ended)
	}()
	id := w.listen.begin(m, post.send)
	defer w.listen.end(id)
	select {
	case <-post.request.Context().Done():
	case <-ended:
	}
}
