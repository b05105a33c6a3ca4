package proxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// What a legacy upstream asks a client of the modern era for, in the middle of a
// call, is held open while the client's request is answered with it ("input
// required"); the client sends the request again with what it was asked for, and
// gets the call's answer by that. The call is one all the while: it keeps its turn
// and is decided once (2026-07-28, basic/patterns/mrtr).

// held is the client's end of a call that asks its client.
type held struct {
	c     *call
	call  [sha256.Size]byte // what is asked: method, name and arguments
	owner wire.Principal

	mu      sync.Mutex      // guards what follows
	asks    map[string]*ask // open, by the key that the client sees
	raw     map[string][]byte
	given   bool   // the client has been given what is open, and has not come back
	state   string // by which it will
	timer   *time.Timer
	by      *call  // the request that waits for the answer; nil: the first
	answer  []byte // the call's, where the client has not come back yet
	over    bool   // the call has its answer
	late    bool   // its client has not come back in time
	release chan struct{}
}

// digestOf is what a request asks for: the same for two that do the same.
func digestOf(m *wire.Message) [sha256.Size]byte {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(m.Method), []byte(m.P.Name), []byte(m.P.URI), m.Bytes(m.P.Arguments)} {
		h.Write(wire.AppendString(nil, string(part)))
		h.Write([]byte{','})
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// canBeAsked reports whether the client of a modern request can be asked for
// anything, so that its answer may come before the call's end.
func (c *call) canBeAsked() bool {
	if !c.client.Amends(c.server) || !c.steps() {
		return false
	}
	capabilities := c.m.Bytes(c.m.P.Modern.Capabilities)
	return slices.ContainsFunc(bridge.Asked[:], func(name string) bool { return has(capabilities, name) })
}

// has reports whether an object has a member that is not null.
func has(object []byte, name string) bool {
	value := wire.Member(object, name)
	return value != nil && string(value) != "null"
}

// declares reports whether a client says in its request that it can be asked for
// this.
func (c *call) declares(method string) bool {
	name := bridge.AskedBy(method)
	return name != "" && has(c.m.Bytes(c.m.P.Modern.Capabilities), name)
}

// waitHeld waits until the client's request is answered, which may be long before
// the call is.
func (c *call) waitHeld() {
	h := c.holding()
	if h == nil {
		c.rest()
		return
	}
	go c.rest()
	<-h.release
}

// holding is the call's held end; it is made on demand, while the call lasts. Nil: it
// has ended without one.
func (c *call) holding() *held {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking == nil {
		c.asking = &asking{}
	}
	if c.asking.held == nil && c.stage == stageUnderWay {
		c.asking.held = &held{c: c, call: digestOf(c.m), owner: c.from.Principal, asks: make(map[string]*ask), raw: make(map[string][]byte), release: make(chan struct{})}
	}
	return c.asking.held
}

// heldEnd is the call's held end, nil if it has none.
func (f *flight) heldEnd() *held {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asking == nil {
		return nil
	}
	return f.asking.held
}

// question has the client asked what the upstream asks: at once, or when it has
// answered what it was asked before.
func (h *held) question(a *ask, m *wire.Message) {
	names, values := []string{"method"}, [][]byte{wire.AppendString(nil, m.Method)}
	if m.Params.Present() {
		names, values = append(names, "params"), append(values, m.Bytes(m.Params))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := string(a.mine)
	h.asks[key], h.raw[key] = a, wire.Object(names, values)
	switch {
	case h.over:
		h.dropLocked("the call has ended")
	case !h.given:
		h.giveLocked()
	}
}

// dropLocked answers in the client's place what is open.
func (h *held) dropLocked(why string) {
	for key, a := range h.asks {
		if h.c.s.takeAsk(key) != nil {
			h.c.s.reject(a.conn, a.id, wire.CodeInternal, why)
		}
	}
	clear(h.asks)
	clear(h.raw)
}

// giveLocked answers the request that waits with all that is open. Where there is no
// room for one more client that is away, the upstream is told so in its place, and the
// request waits on for the call's answer: nothing of that is lost.
func (h *held) giveLocked() {
	state := stateMark + rand.Text()
	if !h.c.s.p.holds.add(state, h) {
		h.c.s.log.Warn("a client is not asked: too many are to come back already; --max-in-flight bounds them in one run",
			h.c.about("method", clip(h.c.m.Method), h.c.Kind.String(), clip(h.c.Name))...)
		h.dropLocked("the client cannot be asked now: too many of its questions are open")
		return
	}
	h.given, h.state = true, state
	var names []string
	var values [][]byte
	for key, raw := range h.raw {
		names, values = append(names, key), append(values, raw)
	}
	result := wire.Object([]string{"resultType", "inputRequests", "requestState"},
		[][]byte{[]byte(`"` + wire.ResultInputRequired + `"`), wire.Object(names, values), wire.AppendString(nil, h.state)})
	h.timer = time.AfterFunc(h.c.s.p.cfg.AskTimeout, func() { h.expire(state) })
	h.replyLocked(func(c *call) { c.out.Answer(wire.ResultAnswer(c.id(), result)) })
}

// limitLocked answers in the client's place what the policy has come to forbid since the
// upstream asked it.
func (h *held) limitLocked() {
	s := h.c.s
	for key, a := range h.asks {
		if s.mayAsk(a.method) || s.run.shadow.Load() {
			continue
		}
		delete(h.asks, key)
		delete(h.raw, key)
		if s.takeAsk(key) != nil {
			s.reject(a.conn, a.id, wire.CodeMethodNotFound, "Method not found: "+clip(a.method))
		}
	}
}

// replyLocked answers the request that waits.
func (h *held) replyLocked(give func(c *call)) {
	by := h.by
	h.by = nil
	if by != nil {
		by.answerBy(func() { give(by) })
		return
	}
	give(h.c)
	select {
	case <-h.release:
	default:
		close(h.release)
		if h.c.pipe != nil { // its id is answered
			h.c.pipe.forget(h.c)
		}
		h.c.released()
	}
}

// back takes a request by which the client comes back: what it brings goes to the
// upstream, and the request waits for the call's answer. It reports false where
// it is another's, or not this call.
func (h *held) back(by *call) bool {
	if by.from.Principal != h.owner || digestOf(by.m) != h.call || by.s != h.c.s || !by.s.p.holds.take(by.m.P.RequestState, h) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer.Stop()
	h.by, h.given = by, false
	if by.waitsFor(h.c) {
		go h.c.cancel(nil)
	}
	h.deliverLocked(by.m.Bytes(by.m.P.InputResponses))
	h.limitLocked()
	switch {
	case h.over:
		h.replyLocked(func(c *call) { c.out.Answer(withIDOf(c, h.answer)) })
	case len(h.asks) > 0:
		h.giveLocked()
	}
	return true
}

// waitsFor has the call wait for another's answer, and reports whether it was
// cancelled before.
func (f *flight) waitsFor(origin *call) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.toOrigin = origin.cancel
	return f.canceled
}

// withIDOf is an answer under another request's id; nil stays nil.
func withIDOf(c *call, answer []byte) []byte {
	m := made(answer)
	if m == nil {
		return nil
	}
	return c.withID(m)
}

// deliverLocked gives the upstream what it asked for.
func (h *held) deliverLocked(responses []byte) {
	s := h.c.s
	_ = wire.Members(responses, func(key string, at wire.Span) error {
		a := h.asks[key]
		if a == nil || responses[at.Start] != '{' {
			return nil
		}
		delete(h.asks, key)
		delete(h.raw, key)
		if s.takeAsk(key) != nil { // else it was withdrawn
			if err := a.conn.Notify(wire.ResultAnswer(a.id, responses[at.Start:at.End])); err != nil {
				s.log.Debug("answering a request of the upstream", "error", err)
			}
		}
		return nil
	})
}

// withdrawn forgets what the upstream asks for no more.
func (h *held) withdrawn(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.asks, key)
	delete(h.raw, key)
}

// left reports whether the first request was answered.
func (h *held) left() bool {
	select {
	case <-h.release:
		return true
	default:
		return false
	}
}

// clientStream is the stream of the request that waits for a call's answer; nil: its client
// is away.
func (c *call) clientStream() wire.Stream {
	h := c.heldEnd()
	if h == nil {
		return c.out
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.by != nil:
		return h.by.out
	case h.given:
		return nil
	}
	return c.out
}

// Pause implements wire.Pauser: what the upstream does to its stream is done to the
// client's.
func (c *call) Pause(retry time.Duration) {
	if out, ok := c.clientStream().(wire.Pauser); ok {
		out.Pause(retry)
	}
}

// settle gives the call's answer to the request that waits for it, or keeps it for
// the one that will come.
func (h *held) settle(give func(c *call), answer []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over, h.answer = true, answer
	h.dropLocked("the call has ended")
	switch {
	case !h.given:
		h.replyLocked(give)
	case h.late:
		h.lostLocked("its client did not come back in time")
	case !h.c.s.p.holds.keep(h.state, h, len(answer)):
		h.lostLocked("there is no room to keep it until its client comes back")
		h.answer = wire.ErrorAnswer(h.c.id(), wire.CodeInternal, unkept, nil)
	}
}

// unkept is what a client hears that comes back for an answer which was not kept.
const unkept = "The server has answered this request, and there was no room to keep the answer until you came back. It may have happened: " +
	"look at what has become of it before you send it again."

// lostLocked tells the log of an answer that its client will not get.
func (h *held) lostLocked(why string) {
	if h.answer != nil {
		h.c.s.log.Warn("an answer was dropped: "+why, h.c.about("method", clip(h.c.m.Method), h.c.Kind.String(), clip(h.c.Name), "bytes", len(h.answer))...)
	}
	h.answer = nil
}

// expire gives up a call whose client does not come back: it is cancelled upstream,
// and what became of it is unknown.
func (h *held) expire(state string) {
	if !h.c.s.p.holds.take(state, h) {
		return
	}
	h.mu.Lock()
	h.late = true
	h.dropLocked("the client did not answer in time")
	if h.over {
		h.lostLocked("its client did not come back in time")
	}
	h.mu.Unlock()
	h.c.cancel(nil)
}

// stateMark is what a requestState of the proxy's begins with.
const stateMark = "fsm1."

// ours reports whether a request's state is one that the proxy has given out, or is
// made to look like it. An upstream of the modern era may give out states of its own that
// do: it may be a proxy of this kind.
func (c *call) ours() bool {
	state := c.m.P.RequestState
	if len(state) <= len(stateMark) || !strings.HasPrefix(state, stateMark) {
		return false
	}
	conn := c.s.link.live()
	return conn == nil || conn.Era() == wire.Legacy || c.s.p.holds.find(state) != nil
}

// comeBack takes a request with a state of the proxy's.
func (c *call) comeBack() wire.Pending {
	if h := c.s.p.holds.find(c.m.P.RequestState); h == nil || !h.back(c) {
		return c.fail(wire.CodeInvalidParams, "requestState is none that this request can bring: it was used already, has expired, or is another request's. Send the request without it")
	}
	return c.later(func() { c.over(context.Background()) })
}
