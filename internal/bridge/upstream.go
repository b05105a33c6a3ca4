package bridge

import (
	"context"
	"slices"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Conn is one connection to a server, of any era. Package upstream has one.
type Conn interface {
	// Era is the connection's, in which all messages given to Start must be.
	Era() wire.Era
	// Hello is the upstream's answer to initialize, or to server/discover.
	Hello() *wire.Message
	// Start sends a client's request under the connection's own id and
	// progress token, and returns without waiting. tag is given back with the
	// messages that belong to the request.
	Start(m *wire.Message, tag any) wire.Call
	// Notify sends a notification, or an answer to a request of the upstream.
	Notify(raw []byte) error
	// List returns what the upstream lists, Cached the same if it is at hand
	// and still holds, else nil.
	List(ctx context.Context, kind wire.ListKind) (*wire.List, error)
	Cached(kind wire.ListKind) *wire.List
	// Listen says of which resources' updates the upstream is to tell, in place of
	// those before: all there are. It is for the modern era, and waits for nothing.
	Listen(uris []string) error
	// Done is closed when the connection has ended.
	Done() <-chan struct{}
	Close()
}

// Upstream is a connection that can be used as one to a server with sessions: what a
// stateless server asks for in the middle of a call is asked by requests, and
// resources are subscribed to one by one.
type Upstream struct {
	Conn
	Server
	receiver wire.Receiver

	mu         sync.Mutex // guards what follows
	subscribed []string
	rounds     map[string]*round // by the keys of the ids of their requests
}

// NewUpstream returns an upstream over a connection. What it asks of clients goes to the receiver,
// with the tag of the request that it asks for.
func NewUpstream(conn Conn, r wire.Receiver) *Upstream {
	return &Upstream{Conn: conn, Server: Server{conn.Era()}, receiver: r}
}

// Start sends a request upstream, as [Conn] does, or does what it asks for where the
// server has no such request. Who may be asked by requests in the middle of it gives a
// [Caller] as its tag; what a stateless one sends goes as it is.
func (u *Upstream) Start(m *wire.Message, tag any) wire.Call {
	by, ok := tag.(Caller)
	if u.era == wire.Legacy || ok && !by.Asks() {
		return u.Conn.Start(m, tag)
	}
	switch m.Method {
	case "resources/subscribe":
		return done(m, u.subscribe(m.P.URI, true))
	case "resources/unsubscribe":
		return done(m, u.subscribe(m.P.URI, false))
	case "logging/setLevel": // each request brings its level along
		return done(m, nil)
	case "tools/call", "resources/read", "prompts/get":
		if ok {
			return newExchange(u, m, by)
		}
	}
	return u.Conn.Start(m, tag)
}

// subscribe has the server tell of the updates of a resource, or not any more.
func (u *Upstream) subscribe(uri string, on bool) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if at, there := slices.BinarySearch(u.subscribed, uri); on && !there {
		u.subscribed = slices.Insert(u.subscribed, at, uri)
	} else if there && !on {
		u.subscribed = slices.Delete(u.subscribed, at, at+1)
	}
	return u.Conn.Listen(slices.Clone(u.subscribed))
}

// Notify sends a notification that the server has, or takes an answer to what a
// client was asked.
func (u *Upstream) Notify(raw []byte) error {
	if u.era == wire.Legacy {
		return u.Conn.Notify(raw)
	}
	m := wire.Made(raw)
	switch {
	case m == nil, m.Method == "notifications/initialized", m.Method == "notifications/progress":
		return nil
	case m.Kind == wire.Notification:
		return u.Conn.Notify(raw)
	}
	u.mu.Lock()
	r := u.rounds[m.IDKey()]
	u.mu.Unlock()
	if r != nil {
		r.take(m)
	}
	return nil
}

// done is a request that needs no answer of the server's.
func done(m *wire.Message, err error) wire.Call {
	if err != nil {
		return absorbed{err: &wire.CallError{Err: err}}
	}
	return absorbed{answer: wire.Made(wire.ResultAnswer(m.Bytes(m.ID), []byte("{}")))}
}

// absorbed is a call that is over as it begins.
type absorbed struct {
	answer *wire.Message
	err    error
}

func (a absorbed) Wait(context.Context) (*wire.Message, error) { return a.answer, a.err }
func (a absorbed) Cancel([]byte)                               {}
func (a absorbed) Overdue()                                    {}

func (a absorbed) Then(do func(*wire.Message, error)) (func(), bool) {
	do(a.answer, a.err)
	return func() {}, true
}
