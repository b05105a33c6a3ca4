// Package asks is requests that are open at a client, the upstream's or the proxy's own, and what an answer asks
// of one.
package asks

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Config is what the requests of all sessions go by.
type Config struct {
	Timeout time.Duration // for a client to answer
	Most    int           // that are open in a session
	Log     hclog.Logger
}

// For is the call for which an upstream asks.
type For interface {
	// Asked tells that a request is open for the call, or is no more: its time does not run
	// meanwhile. It is called under a lock of Open's, and must not call that.
	Asked(open bool)
}

// Asker is who asks: a connection to the upstream, or the proxy itself. Two are told apart by ==.
type Asker interface {
	// Notify takes the answer, under the asker's own id, or the client's progress. It must not wait.
	Notify(raw []byte) error
}

// Client is who is asked.
type Client interface {
	// SendAsk gives the client a request of the upstream, or what is said of one, and reports
	// whether that went out. of is the call for which it asks, nil where none is known.
	SendAsk(raw []byte, of For) bool
	// Unanswered tells that the client has not answered a request in time.
	Unanswered(method string)
}

// Open are the requests of the upstream that are open at a session's client. The zero value has
// none. It is safe for concurrent use.
type Open struct {
	mu     sync.Mutex // guards what follows
	asks   map[string]*ask
	last   int64
	closed bool
}

// ask is one of them.
type ask struct {
	from   Asker
	id     []byte // the asker's own id
	method string
	of     For         // nil: none is known
	token  string      // the key of its progress token, empty: none
	mine   []byte      // the id that the client sees
	lapses *time.Timer // when the client has had its time
}

// Ask carries a request to a client, under an id of its own; of is nil where it is
// not known for which call.
func (o *Open) Ask(c *Config, client Client, from Asker, m *wire.Message, of For) {
	a := &ask{from: from, id: m.Bytes(m.ID), method: m.Method, of: of, token: wire.Key(m.Bytes(m.P.MetaToken))}
	if !o.enter(c, client, a) {
		c.Reject(from, a.id, wire.CodeInternal, "the client's session has ended, or too many requests are open")
		return
	}
	if !client.SendAsk(wire.Splice(m.Raw, wire.Edit{At: m.ID, With: a.mine}), of) {
		o.take(string(a.mine))
		c.Reject(from, a.id, wire.CodeInternal, "the client takes no requests now")
	}
}

// own is the proxy itself, as it asks one thing.
type own struct{ answered func(result []byte) }

// Notify implements Asker.
func (o *own) Notify(raw []byte) error {
	if m := wire.Made(raw); m != nil && m.Kind != wire.Notification {
		o.answered(m.Bytes(m.Result))
	}
	return nil
}

// AskOwn asks a client for the proxy itself, on behalf of a call. answered is told of the result, nil where there is
// none, unless it is withdrawn before; it must not wait.
func (o *Open) AskOwn(c *Config, client Client, method string, params []byte, of For, answered func(result []byte)) (withdraw func()) {
	from := &own{answered}
	o.Ask(c, client, from, wire.Made(wire.RequestMessage(1, method, params)), of)
	return func() { o.Withdraw(client, from, "the call needs no answer any more") }
}

// Reject answers a request of the upstream in the client's place.
func (c *Config) Reject(from Asker, id []byte, code int, text string) {
	c.answer(from, wire.ErrorAnswer(id, code, text, nil))
}

func (c *Config) answer(from Asker, raw []byte) {
	if err := from.Notify(raw); err != nil {
		c.Log.Debug("answering who has asked a client", "error", err)
	}
}

// enter opens an ask under a new id, for as long as a client may take.
func (o *Open) enter(c *Config, client Client, a *ask) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.asks) >= c.Most {
		return false
	}
	o.last++
	a.mine = strconv.AppendInt(nil, o.last, 10)
	if o.asks == nil {
		o.asks = make(map[string]*ask)
	}
	o.asks[string(a.mine)] = a
	a.lapses = time.AfterFunc(c.Timeout, func() { o.lapse(c, client, string(a.mine)) })
	if a.of != nil {
		a.of.Asked(true)
	}
	return true
}

// take closes an ask, nil if there is none under the id.
func (o *Open) take(id string) *ask {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.asks[id]
	if a == nil {
		return nil
	}
	delete(o.asks, id)
	a.lapses.Stop()
	if a.of != nil {
		a.of.Asked(false)
	}
	return a
}

const unanswered = "the client did not answer in time"

// lapse gives up an ask that the client has not answered in time: the upstream gets an
// error for it.
func (o *Open) lapse(c *Config, client Client, id string) {
	a := o.take(id)
	if a == nil {
		return
	}
	client.Unanswered(a.method)
	a.withdraw(client, unanswered)
	c.Reject(a.from, a.id, wire.CodeInternal, unanswered)
}

// withdraw tells a client that it need not answer an ask any more.
func (a *ask) withdraw(client Client, reason string) {
	params := append(append([]byte(`{"requestId":`), a.mine...), `,"reason":`...)
	client.SendAsk(wire.NotificationMessage("notifications/cancelled", append(wire.AppendString(params, reason), '}')), a.of)
}

// Answered carries the client's answer to the upstream that asked. An answer to
// nothing that is open goes nowhere.
func (o *Open) Answered(c *Config, m *wire.Message) {
	a := o.take(m.IDKey())
	if a == nil {
		c.Log.Debug("dropped an answer to no open request")
		return
	}
	c.answer(a.from, wire.Splice(m.Raw, wire.Edit{At: m.ID, With: a.id}))
}

// Cancelled carries the upstream's cancellation of its own request.
func (o *Open) Cancelled(client Client, from Asker, m *wire.Message) {
	key := wire.Key(m.Bytes(m.P.RequestID))
	for id, a := range o.all() {
		if a.from == from && wire.Key(a.id) == key && o.take(id) != nil {
			client.SendAsk(wire.Splice(m.Raw, wire.Edit{At: m.P.RequestID, With: a.mine}), a.of)
		}
	}
}

func (o *Open) all() map[string]*ask {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.asks)
}

// Any reports whether the client is asked something.
func (o *Open) Any() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.asks) > 0
}

// Close answers what is open in the client's place: its session has ended. Nothing is asked of it
// from then on.
func (o *Open) Close(c *Config) {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	for id, a := range o.all() {
		if o.take(id) != nil {
			c.Reject(a.from, a.id, wire.CodeInternal, "the client's session has ended")
		}
	}
}

// Withdraw takes back from the client what somebody has asked who wants no answer any more.
func (o *Open) Withdraw(client Client, from Asker, reason string) {
	for id, a := range o.all() {
		if a.from == from && o.take(id) != nil {
			a.withdraw(client, reason)
		}
	}
}

// Progress carries the client's progress on a request of the upstream.
func (o *Open) Progress(m *wire.Message) {
	token := wire.Key(m.Bytes(m.P.ProgressToken))
	for _, a := range o.all() {
		if token != "" && a.token == token {
			_ = a.from.Notify(m.Raw)
			return
		}
	}
}
