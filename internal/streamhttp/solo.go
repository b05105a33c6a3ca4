package streamhttp

import (
	"context"
	"net/http"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// solo is one POST of the modern era under way, as the stream of its request:
// nothing has been written yet, or it has become an event stream. Whoever closes
// it cancels the request; nothing is kept for them.
type solo struct {
	s       *Server
	w       http.ResponseWriter
	ctx     context.Context // the client's end of it
	head    http.Header     // of the request
	party   party
	takes   accepts
	listens bool  // it is subscriptions/listen: an event stream in any case
	since   int64 // when it began, in ticks
	at      int   // among the server's solos; guarded by their mutex

	mu         sync.Mutex // guards what follows
	answered   bool
	status     int // of the answer; 0: 200
	answer     []byte
	inParts    bool // the answer is a result under id
	id, result []byte
	rest       wire.Cancellable // nil: nothing to cancel
	cancelled  bool
	unwatch    func() bool // nil: nobody watches for the client's going
	events     *soloEvents // nil: no event stream yet
}

// serve hands on the request and gives its answer.
func (x *solo) serve(m *wire.Message, from PeerInfo) {
	pending := x.s.cfg.Modern(m, x, from)
	if pending != nil {
		x.wait(pending)
	}
	x.end(m.Bytes(m.ID))
}

// wait waits for what was left to be waited for.
func (x *solo) wait(pending wire.Pending) {
	x.attach(pending)
	if !x.listens {
		pending.Wait()
		return
	}
	x.listen(pending)
}

// attach keeps the way to cancel the request.
func (x *solo) attach(pending wire.Pending) {
	rest, ok := pending.(wire.Cancellable)
	if !ok {
		return
	}
	x.mu.Lock()
	x.rest = rest
	cancelled := x.cancelled
	x.mu.Unlock()
	if cancelled {
		rest.Cancel()
	}
}

// listen writes a stream that lasts, while the rest goes on by itself.
func (x *solo) listen(pending wire.Pending) {
	over := make(chan struct{})
	done := func() { close(over) }
	if !pending.Detach(done) {
		go func() { defer done(); pending.Wait() }()
	}
	x.mu.Lock()
	if !x.answered {
		x.streamLocked()
	}
	events := x.events
	x.mu.Unlock()
	if events != nil {
		events.run(x.ctx)
	}
	<-over
}

// cancel has the request cancelled, once.
func (x *solo) cancel() {
	x.mu.Lock()
	rest := x.rest
	if x.cancelled || x.answered {
		rest = nil
	}
	x.cancelled = true
	x.mu.Unlock()
	if rest != nil {
		rest.Cancel()
	}
}

// sweep does what time brings.
func (x *solo) sweep(now int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unwatch == nil && !x.answered {
		x.unwatch = context.AfterFunc(x.ctx, x.cancel)
	}
	cfg := &x.s.cfg
	switch {
	case x.events != nil:
		x.events.beatLocked(now - ticks(cfg.KeepAlive))
	case !x.answered && x.takes.sse && !x.listens && now-x.since > ticks(cfg.Patience):
		x.openLocked()
	}
}

// openLocked makes the POST an event stream, written by a goroutine of its own
// that end waits for. One that listens is written by that which serves it.
func (x *solo) openLocked() {
	x.streamLocked()
	if !x.listens {
		go x.events.run(x.ctx)
	}
}

func (x *solo) streamLocked() {
	if x.events == nil {
		x.events = newSoloEvents(x)
	}
}

// Send implements wire.Stream.
func (x *solo) Send(msg []byte) bool {
	x.mu.Lock()
	if x.answered || !x.takes.sse {
		x.mu.Unlock()
		return false
	}
	if x.events == nil {
		x.openLocked()
	}
	room := x.events.addLocked(msg)
	x.mu.Unlock()
	if !room {
		x.cancel()
	}
	return room
}

// Answer implements wire.Stream.
func (x *solo) Answer(msg []byte) { x.Fail(0, msg) }

// Fail implements wire.FailingStream.
func (x *solo) Fail(code int, msg []byte) { x.answerAs(statusOf(code), msg) }

// Decline implements wire.DecliningStream.
func (x *solo) Decline(msg []byte) { x.answerAs(http.StatusServiceUnavailable, msg) }

func (x *solo) answerAs(status int, msg []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answered {
		return
	}
	x.answered = true
	x.status, x.answer = status, msg
	if x.events != nil {
		x.events.endLocked(msg)
	}
}

// AnswerResult implements wire.ResultStream: a long list is not copied for its id.
func (x *solo) AnswerResult(id, result []byte) {
	if !x.answerParts(id, result) {
		x.Answer(wire.ResultAnswer(id, result))
	}
}

func (x *solo) answerParts(id, result []byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answered || x.events != nil || !x.takes.json {
		return false
	}
	x.answered = true
	x.inParts, x.id, x.result = true, id, result
	return true
}

// Listening implements wire.Stream.
func (x *solo) Listening() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.answered && x.takes.sse && (x.events == nil || !x.events.gone)
}

// Header implements wire.HeadedStream.
func (x *solo) Header(name string) string { return x.head.Get(name) }

// Headers implements wire.HeadedStream.
func (x *solo) Headers(name string) []string { return x.head[name] }

// end completes the response once nothing is left to wait for.
func (x *solo) end(id []byte) {
	events := x.settle()
	switch {
	case events != nil && x.listens: // written by now, unless all of it came before
		events.run(x.ctx)
	case events != nil:
		<-events.done
	case x.status == http.StatusServiceUnavailable:
		decline(x.w, x.answer)
	case x.inParts:
		writeResult(x.w, x.id, x.result)
	case x.answer == nil: // cancelled: whoever is still there has no other answer
		writeJSON(x.w, wire.ErrorAnswer(id, wire.CodeInternal, "the request was cancelled", nil))
	case x.takes.json || x.status != http.StatusOK:
		writeAnswer(x.w, x.status, x.answer)
	default:
		x.stream()
	}
}

// settle closes the POST as a stream, and returns its events, where there are any.
func (x *solo) settle() *soloEvents {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unwatch != nil {
		x.unwatch()
	}
	if !x.answered {
		x.answered = true
		if x.events != nil {
			x.events.endLocked(nil)
		}
	}
	return x.events
}

// stream writes the answer as an event, here, to a client that takes nothing
// else.
func (x *solo) stream() {
	x.mu.Lock()
	x.streamLocked()
	x.events.endLocked(x.answer)
	x.mu.Unlock()
	x.events.run(x.ctx)
}

// writeAnswer is writeJSON with a status.
func writeAnswer(w http.ResponseWriter, status int, answer []byte) {
	announceJSON(w, len(answer))
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}
