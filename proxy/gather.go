package proxy

import (
	"bytes"
	"errors"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// What a modern upstream asks for in its answer to a call, a client of the legacy
// era is asked by requests of the proxy's own, and the call is sent again with what
// it says (2026-07-28, basic/patterns/mrtr). It is one call all the while: it keeps its
// turn, if it has one, and its time runs on whenever it is at the upstream. But what is
// sent again is a request of this moment, and the policy has to allow it now.

// gather is what a client is asked for one answer of the upstream's.
type gather struct {
	c     *call
	conn  Upstream // that asks
	state []byte   // the upstream's requestState, raw; nil: none

	mu        sync.Mutex // guards what follows
	open      map[string]*ask
	responses map[string][]byte
	size      int // of the responses
	over      bool
}

// maxRounds is how often one call may ask its client, and maxResponses how many bytes
// the answers to what it asks at once may have: a client of the modern era would send
// them in one message.
const (
	maxRounds    = 64
	maxResponses = 4 << 20
)

var (
	errRounds     = errors.New("it asked its client too many times")
	errUnasked    = errors.New("it asks for what this client cannot give")
	errRefused    = errors.New("the client did not answer what it asked for")
	errUnanswered = errors.New("the client did not answer in time what it asked for")
	errAnswers    = errors.New("the client's answers to what it asked for are larger than 4 MiB")
)

// asksFor reports whether an answer asks a client for what the proxy has to ask it.
func (c *call) asksFor(m *wire.Message, err error) bool {
	return err == nil && !c.client.Stateless() && c.server.Meaning(c.m, m) == bridge.InputRequired
}

// gatheringLocked is what the client is asked now, nil: nothing.
func (f *flight) gatheringLocked() *gather {
	if f.asking == nil {
		return nil
	}
	return f.asking.gather
}

// round counts another time that the call asks its client.
func (f *flight) round() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asking == nil {
		f.asking = &asking{}
	}
	f.asking.rounds++
	return f.asking.rounds
}

// hasAsked reports whether the call has asked its client for a modern upstream.
func (f *flight) hasAsked() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asking != nil && f.asking.rounds > 0
}

// sentAgain is what the call is sent again with, nil: it is not.
func (f *flight) sentAgain() *gather {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asking == nil {
		return nil
	}
	return f.asking.again
}

// gatherFrom asks the client what the upstream's answer asks for.
func (c *call) gatherFrom(m *wire.Message) {
	c.clock.hold() // until it is sent again
	if c.round() > maxRounds {
		c.dropped(errRounds)
		return
	}
	g := &gather{c: c, conn: c.conn, state: bytes.Clone(m.Bytes(m.R.RequestState)), open: make(map[string]*ask), responses: make(map[string][]byte)}
	c.mu.Lock()
	canceled, gaveUp := c.canceled, c.gaveUp
	if !canceled && gaveUp == nil {
		c.asking.gather = g
	}
	c.mu.Unlock()
	if canceled || gaveUp != nil {
		c.dropped(errGivenUp)
		return
	}
	g.ask(m)
}

// ask sends the client its requests, all at once.
func (g *gather) ask(m *wire.Message) {
	c := g.c
	inputs := m.Bytes(m.R.InputRequests)
	var messages [][]byte
	err := wire.Members(inputs, func(name string, at wire.Span) error {
		raw, method := g.request(name, inputs[at.Start:at.End])
		if raw == nil || !c.s.mayAsk(method) && !c.s.overlooksAsk(method) {
			return errUnasked
		}
		messages = append(messages, raw)
		return nil
	})
	if inputs == nil {
		err = nil
	}
	if err != nil {
		g.fail(errUnasked)
		return
	}
	if len(messages) == 0 {
		g.finish()
		return
	}
	for _, raw := range messages {
		if !c.s.send(raw, c) {
			g.fail(errRefused)
			return
		}
	}
}

// request makes the client's request of an input request, and opens its ask.
func (g *gather) request(name string, input []byte) (raw []byte, method string) {
	method, _ = wire.Text(wire.Member(input, "method"))
	params := wire.Member(input, "params")
	a := &ask{method: method, call: g.c, gather: g, name: name}
	if method == "" || !g.c.s.enterAsk(a) {
		return nil, ""
	}
	if !g.opens(name, a) {
		g.c.s.takeAsk(string(a.mine))
		return nil, ""
	}
	out := append([]byte(`{"jsonrpc":"2.0","id":`), a.mine...)
	out = wire.AppendString(append(out, `,"method":`...), method)
	if params != nil {
		out = append(append(out, `,"params":`...), params...)
	}
	return append(out, '}'), method
}

// opens enters one of the requests, and reports false where there is one of the name, or
// the gathering has ended: the call may be cancelled while its client is yet to be asked.
func (g *gather) opens(name string, a *ask) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || g.open[name] != nil {
		return false
	}
	g.open[name] = a
	return true
}

// take takes the client's answer to one of its requests.
func (g *gather) take(name string, m *wire.Message) {
	if m.Kind != wire.Result {
		g.fail(errRefused)
		return
	}
	result := m.Bytes(m.Result)
	g.mu.Lock()
	delete(g.open, name)
	g.responses[name] = result
	g.size += len(result)
	rest, size := len(g.open), g.size
	g.mu.Unlock()
	switch {
	case size > maxResponses:
		g.fail(errAnswers)
	case rest == 0:
		g.finish()
	}
}

// end ends the gathering, and reports whether it was the first to do so.
func (g *gather) end() bool {
	g.mu.Lock()
	over := g.over
	g.over = true
	open := g.open
	g.open = nil
	g.mu.Unlock()
	for _, a := range open {
		if g.c.s.takeAsk(string(a.mine)) != nil {
			g.c.s.withdrawFrom(a, "the call has ended")
		}
	}
	return !over
}

// finish sends the call again, with what the client has said.
func (g *gather) finish() {
	if g.end() && !g.c.s.p.lasts(g.again) {
		g.c.dropped(errEnding)
	}
}

// again is the call's way from being sent again on: the policy may not allow it any more,
// or it may have to wait for a turn that it takes by now.
func (g *gather) again() {
	c := g.c
	c.mu.Lock()
	c.asking.gather, c.asking.again = nil, g
	c.next, c.up = nil, nil
	gaveUp := c.gaveUp // its time does not run until it is sent
	c.mu.Unlock()
	if gaveUp != nil {
		c.dropped(gaveUp)
		return
	}
	c.look(g.conn.Cached(listKind(c.Kind)))
	e, moved, held := c.s.run.keeps(c)
	if e == run.ListWanted {
		if err := c.fetch(g.conn); err != nil {
			c.dropped(err)
			return
		}
		e, moved, held = c.s.run.keeps(c)
	}
	c.s.run.tell(moved, nil)
	var rest wire.Pending
	if held {
		rest = c.decided(e, g.conn)
	} else {
		rest = c.enter(g.conn)
	}
	if rest != nil {
		c.rest()
	}
}

// asker is the connection on which the call is to be sent again, nil for one that was not
// sent yet.
func (c *call) asker() Upstream {
	if again := c.sentAgain(); again != nil {
		return again.conn
	}
	return nil
}

// answered is a request with what its client was asked for.
func (g *gather) answered(m *wire.Message) *wire.Message {
	if !m.Params.Present() {
		return m
	}
	a := wire.Amend(m.Raw, m.Params)
	if len(g.responses) > 0 {
		var names []string
		var values [][]byte
		for name, value := range g.responses {
			names, values = append(names, name), append(values, value)
		}
		a.Set(m.P.InputResponses, "inputResponses", wire.Object(names, values))
	}
	if g.state != nil {
		a.Set(m.P.RequestStateAt, "requestState", g.state)
	}
	return bridge.Reread(a.Bytes(), m)
}

// fail ends a call whose client was not asked, or did not answer: nothing was done
// yet.
func (g *gather) fail(why error) {
	if g.end() {
		g.c.dropped(why)
	}
}

// abort ends a call that is cancelled while its client is asked.
func (g *gather) abort() { g.fail(errGivenUp) }

// dropped answers a call that is not sent again.
func (c *call) dropped(why error) {
	c.mu.Lock()
	c.asking.gather = nil
	c.mu.Unlock()
	c.notifyChanged(c.settle(noOutcome))
	c.reply(nil, why, noOutcome)
}
