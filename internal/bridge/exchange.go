package bridge

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Caller is a request's tag whose client can be asked by requests in the middle of it.
type Caller interface {
	// Asks reports whether it is to be asked so: a stateless client is given what the
	// server asks for.
	Asks() bool
	// MayAsk reports whether the upstream may ask this now. Either all that an answer asks for
	// is asked, or nothing.
	MayAsk(method string) bool
	// Resend asks whether the request may be sent again, with what its client has
	// answered, and waits until it may. It is a request of that moment; the error says
	// why it may not be sent.
	Resend() error
	// Go runs f on a goroutine of the caller's, and reports false where there are to be none.
	Go(f func()) bool
}

// Bounds of an exchange: how often it may ask its client, and how many bytes the
// answers to what it asks at once may have: a stateless client would send them in one
// message.
const (
	maxRounds    = 64
	maxResponses = 4 << 20
)

var (
	errRounds    = errors.New("it asked its client too many times")
	errUnasked   = errors.New("it asks for what this client cannot give")
	errAnswers   = errors.New("the client's answers to what it asked for are larger than 4 MiB")
	errCancelled = errors.New("it was cancelled")
	errLost      = errors.New("the connection on which it asked its client has ended")
)

// exchange is a request to a stateless server that may ask the request's client: the
// client is asked by requests, and the request is sent again with what it says
// (2026-07-28, basic/patterns/mrtr). It is one call all the while.
type exchange struct {
	u    *Upstream
	m    *wire.Message
	by   Caller
	life deadline.Life // of Then

	mu     sync.Mutex // guards what follows
	up     wire.Call  // nil: the server waits for the client
	ended  func(error)
	cancel []byte // the params of the cancellation
	off    bool   // it was cancelled
}

func newExchange(u *Upstream, m *wire.Message, by Caller) *exchange {
	return &exchange{u: u, m: m, by: by, up: u.Conn.Start(m, by)}
}

// Wait implements wire.Call.
func (x *exchange) Wait(ctx context.Context) (*wire.Message, error) {
	m, err := x.up.Wait(ctx)
	return x.rest(ctx, m, err)
}

// Then implements wire.Call.
func (x *exchange) Then(do func(*wire.Message, error)) (giveUp func(), ok bool) {
	stop, ok := x.up.Then(func(m *wire.Message, err error) {
		if !x.asks(m, err) {
			do(m, err)
		} else if !x.by.Go(func() { do(x.rest(&x.life, m, nil)) }) {
			do(nil, &wire.CallError{Err: errCancelled})
		}
	})
	return func() { x.life.End(); stop() }, ok
}

// Cancel implements wire.Call.
func (x *exchange) Cancel(params []byte) {
	x.mu.Lock()
	up, ended := x.up, x.ended
	x.off, x.cancel = true, params
	x.mu.Unlock()
	switch {
	case up != nil:
		up.Cancel(params)
	case ended != nil:
		ended(errCancelled)
	}
}

// Overdue implements wire.Call.
func (x *exchange) Overdue() {
	x.mu.Lock()
	up := x.up
	x.mu.Unlock()
	if up != nil {
		up.Overdue()
	}
}

// asks reports whether an answer asks the client.
func (x *exchange) asks(m *wire.Message, err error) bool {
	return err == nil && x.u.Meaning(x.m, m) == InputRequired
}

// rest asks the client and sends the request again for as long as it is answered by a
// question.
func (x *exchange) rest(ctx context.Context, m *wire.Message, err error) (*wire.Message, error) {
	for rounds := 0; x.asks(m, err); rounds++ {
		if rounds == maxRounds {
			return nil, &wire.CallError{Err: errRounds}
		}
		request, why := x.ask(ctx, m)
		if why == nil && ctx.Err() == nil {
			why = x.by.Resend()
		}
		if why == nil && (ctx.Err() != nil || !x.send(request)) {
			why = errCancelled
		}
		if why != nil {
			return nil, &wire.CallError{Err: why}
		}
		m, err = x.up.Wait(ctx)
	}
	return m, err
}

// send sends the request again, unless it was cancelled.
func (x *exchange) send(m *wire.Message) bool {
	x.mu.Lock()
	off := x.off
	x.mu.Unlock()
	if off {
		return false
	}
	up := x.u.Conn.Start(m, x.by)
	x.mu.Lock()
	x.up, off = up, x.off
	params := x.cancel
	x.mu.Unlock()
	if off {
		up.Cancel(params)
	}
	return true
}

// ask asks the client what an answer asks for, and returns the request with what it says.
func (x *exchange) ask(ctx context.Context, m *wire.Message) (*wire.Message, error) {
	r := &round{x: x, responses: make(map[string][]byte), over: make(chan struct{})}
	x.mu.Lock()
	x.up, x.ended = nil, r.end
	off := x.off
	x.mu.Unlock()
	if off {
		return nil, errCancelled
	}
	requests, err := r.requests(m)
	for _, request := range requests {
		if r.hasEnded() {
			break
		}
		x.u.receiver.Receive(request, x.by)
		if r.hasEnded() { // perhaps before the client could be found to be asked
			r.withdraw(string(request.Bytes(request.ID)))
		}
	}
	if err != nil || len(requests) == 0 {
		r.end(err)
	}
	select {
	case <-r.over:
	case <-ctx.Done():
		r.end(errCancelled)
	case <-x.u.Done():
		r.end(errLost)
	}
	x.mu.Lock()
	x.ended = nil
	x.mu.Unlock()
	if r.err != nil {
		return nil, r.err
	}
	return r.answered(x.m, m.Bytes(m.R.RequestState)), nil
}

// round is what a client is asked for one answer of the server's.
type round struct {
	x *exchange

	mu        sync.Mutex        // guards what follows
	ids       map[string]string // of what is open, by the names of what is asked for
	responses map[string][]byte
	size      int
	ended     bool
	over      chan struct{} // closed when it has ended; err is written before
	err       error         // why the request is not sent again
}

// requests are what the client is asked by, under ids of their own.
func (r *round) requests(m *wire.Message) (all []*wire.Message, err error) {
	inputs := m.Bytes(m.R.InputRequests)
	if inputs == nil {
		return nil, nil
	}
	ids := make(map[string]string)
	err = wire.Members(inputs, func(name string, at wire.Span) error {
		method, _ := wire.Text(wire.Member(inputs[at.Start:at.End], "method"))
		id := lastAsk.Add(1)
		request := wire.Made(wire.RequestMessage(id, method, wire.Member(inputs[at.Start:at.End], "params")))
		if _, twice := ids[name]; twice || method == "" || request == nil || !r.x.by.MayAsk(method) {
			return errUnasked
		}
		ids[name] = strconv.FormatInt(id, 10)
		all = append(all, request)
		return nil
	})
	if err != nil {
		return nil, errUnasked
	}
	u := r.x.u
	u.mu.Lock()
	defer u.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, errCancelled
	}
	if u.rounds == nil {
		u.rounds = make(map[string]*round)
	}
	for _, id := range ids {
		u.rounds[id] = r
	}
	r.ids = ids
	return all, nil
}

// lastAsk is the id of the last request to a client. They tell apart what is asked on all
// connections: an answer may come when another has taken a connection's place.
var lastAsk atomic.Int64

// take takes the client's answer to one of the requests.
func (r *round) take(m *wire.Message) {
	var why error
	switch {
	case m.Kind == wire.Result:
	case m.ErrorCode == wire.CodeMethodNotFound:
		why = errUnasked
	default:
		said, _ := wire.Text(wire.Member(m.Bytes(m.Error), "message"))
		why = fmt.Errorf("the client did not answer what it asked for: %q", said)
	}
	r.mu.Lock()
	for name, id := range r.ids {
		if why != nil || id != m.IDKey() {
			continue
		}
		delete(r.ids, name)
		r.responses[name] = m.Bytes(m.Result)
		if r.size += len(r.responses[name]); r.size > maxResponses {
			why = errAnswers
		}
	}
	rest := len(r.ids)
	r.mu.Unlock()
	if why != nil || rest == 0 {
		r.end(why)
	}
}

// end ends the round, once, and takes back from the client what it has yet to answer.
func (r *round) end(why error) {
	u := r.x.u
	u.mu.Lock()
	for id, of := range u.rounds {
		if of == r {
			delete(u.rounds, id)
		}
	}
	r.mu.Lock()
	ids, before := r.ids, r.ended
	r.ids, r.ended = nil, true
	if !before {
		r.err = why
		close(r.over)
	}
	r.mu.Unlock()
	u.mu.Unlock()
	for _, id := range ids {
		r.withdraw(id)
	}
}

// hasEnded reports whether the round has ended.
func (r *round) hasEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// withdraw takes a request back from the client.
func (r *round) withdraw(id string) {
	params := []byte(`{"requestId":` + id + `,"reason":"the call has ended"}`)
	r.x.u.receiver.Receive(wire.Made(wire.NotificationMessage("notifications/cancelled", params)), r.x.by)
}

// answered is a request with what its client was asked for.
func (r *round) answered(m *wire.Message, state []byte) *wire.Message {
	if !m.Params.Present() {
		return m
	}
	a := wire.Amend(m.Raw, m.Params)
	if len(r.responses) > 0 {
		var names []string
		var values [][]byte
		for name, value := range r.responses {
			names, values = append(names, name), append(values, value)
		}
		a.Set(m.P.InputResponses, "inputResponses", wire.Object(names, values))
	}
	if state != nil {
		a.Set(m.P.RequestStateAt, "requestState", state)
	}
	return Reread(a.Bytes(), m)
}
