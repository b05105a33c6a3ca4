package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
)

// What the HTTP upstream is made of: a handler of net/http's server, as most servers
// are, or bare connections, which cost a third of that and so put all the weight on
// what lies between. Neither has an SDK.
const (
	standardUpstream = "net/http"
	bareUpstream     = "bare"
)

// ServeHTTP answers as [httpUpstream.serve] does on bare connections.
func (u *httpUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	answer := u.canned.answer(nil, body)
	switch {
	case r.Method == http.MethodGet:
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
		return
	case r.Method == http.MethodDelete:
		return
	case len(answer) == 0:
		w.WriteHeader(http.StatusAccepted)
		return
	case isInitialize(body):
		w.Header().Set("Mcp-Session-Id", rand.Text())
	}
	if u.sse {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: message\ndata: %s\n\n", answer)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // who has gone asks no more
}
