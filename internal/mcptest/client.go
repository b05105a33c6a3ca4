package mcptest

import (
	"sync"
	"testing"
	"time"
)

// Session is one raw client connection, over stdio or over HTTP alike. Messages are bytes both ways.
type Session struct {
	t      testing.TB
	line   transport
	inbox  chan Message
	modern *Modern // nil: a client of the legacy era

	mu       sync.Mutex // guards both below
	nextID   int
	received []Message
}

// transport carries messages of one connection. Both kinds put what arrives into the session's inbox.
type transport interface {
	send(text string)                // one message towards the server
	open(text string) (leave func()) // one request that the client may take back
	close()                          // the polite end: stdin closed, or DELETE
}

func newSession(t testing.TB) *Session {
	return &Session{t: t, inbox: make(chan Message, 4096)}
}

// deliver is called by the transport's readers with each message that arrives.
func (s *Session) deliver(m Message) {
	s.mu.Lock()
	s.received = append(s.received, m)
	s.mu.Unlock()
	s.inbox <- m
}

// Send sends one message as it is.
func (s *Session) Send(text string) { s.line.send(text) }

// Request sends a request with the next free id, and returns the id. Params is JSON; empty leaves it out.
func (s *Session) Request(method, params string) int {
	id, text := s.request(method, params)
	s.Send(text)
	return id
}

// request makes a request of the session's era.
func (s *Session) request(method, params string) (id int, text string) {
	s.mu.Lock()
	s.nextID++
	id = s.nextID
	s.mu.Unlock()
	if s.modern != nil {
		params = s.modern.Params(params)
	}
	return id, Request(id, method, params)
}

// Notify sends a notification. Params is JSON; empty leaves it out.
func (s *Session) Notify(method, params string) { s.Send(Notification(method, params)) }

// Next returns the next message from the server that no other call has taken.
func (s *Session) Next() Message {
	s.t.Helper()
	timeout := time.After(Patience)
	select {
	case m := <-s.inbox:
		return m
	case <-timeout:
		s.t.Fatalf("waited %v for a message from the server", Patience)
		return Message{}
	}
}

// Answer returns the answer to the request with the id, and every message that came before it, in order.
func (s *Session) Answer(id any) (answer Message, before []Message) {
	s.t.Helper()
	want := string(encode(id))
	for {
		m := s.Next()
		if m.IsResponse() && string(m.ID) == want {
			return m, before
		}
		before = append(before, m)
	}
}

// Call sends a request and returns its answer; what came before is dropped.
func (s *Session) Call(method, params string) Message {
	s.t.Helper()
	answer, _ := s.Answer(s.Request(method, params))
	return answer
}

// Tool calls a tool with arguments given as JSON, and returns the answer; what came before is dropped.
func (s *Session) Tool(name, arguments string) Message {
	s.t.Helper()
	return s.Call("tools/call", ToolParams(name, arguments))
}

// ToolParams returns the params of a tools/call. Arguments is JSON; empty leaves it out.
func ToolParams(name, arguments string) string {
	return `{"name":` + string(encode(name)) + member("arguments", arguments) + `}`
}

// Initialize opens the session as a client that can do everything, at protocol revision 2025-11-25, and
// returns the answer to initialize.
func (s *Session) Initialize() Message {
	s.t.Helper()
	return s.InitializeAs(`{"protocolVersion":"2025-11-25","capabilities":{"sampling":{},"elicitation":{},` +
		`"roots":{"listChanged":true}},"clientInfo":{"name":"raw","version":"1"}}`)
}

// InitializeAs opens the session with params of the caller's making.
func (s *Session) InitializeAs(params string) Message {
	s.t.Helper()
	answer := s.Call("initialize", params)
	s.Notify("notifications/initialized", "")
	return answer
}

// Received returns every message that has arrived so far, whoever took it.
func (s *Session) Received() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Message(nil), s.received...)
}

// Close ends the session politely and waits for its end.
func (s *Session) Close() { s.line.close() }
