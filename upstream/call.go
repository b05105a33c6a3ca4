package upstream

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// call is one request under way. It is a wire.Call.
type call struct {
	conn   *Conn
	id     int64
	raw    []byte // the request as it goes upstream
	tag    any
	token  []byte      // the client's progress token, raw; nil for none
	modern *modernPost // of the modern era over HTTP; else nil
	// Who takes the call out of the connection's table gives it its outcome, or
	// gives that to then, which conn.mu guards.
	then func(*wire.Message, error)

	mu     sync.Mutex    // guards what follows; calls of a connection share no lock but for the table
	over   bool          // there is an outcome
	result outcome       // not written any more once it is over
	ready  chan struct{} // closed when it is over; made on demand
	posted bool          // it is being sent by Wait
	unsent bool          // it was cancelled before that
}

// outcome is a call's end: one of the two is set.
type outcome struct {
	m   *wire.Message
	err *wire.CallError
}

// newCall makes the request as it goes upstream: id and progress token are the
// connection's own integer. It is the only edit.
func newCall(c *Conn, m *wire.Message, tag any) *call {
	id := c.last.Add(1)
	var digits [20]byte
	number := strconv.AppendInt(digits[:0], id, 10)
	edits := [2]wire.Edit{{At: m.ID, With: number}, {At: m.P.MetaToken, With: number}}
	used := edits[:]
	switch {
	case !m.P.MetaToken.Present():
		used = edits[:1]
	case m.P.MetaToken.Start < m.ID.Start:
		edits[0], edits[1] = edits[1], edits[0]
	}
	k := &call{conn: c, id: id, tag: tag, raw: wire.Splice(m.Raw, used...), token: m.Bytes(m.P.MetaToken)}
	if m.Era() == wire.Modern && c.link.streams() {
		k.modern = &modernPost{message: m}
	}
	return k
}

// Wait implements wire.Call. The answer carries the connection's id.
func (k *call) Wait(ctx context.Context) (*wire.Message, error) { return k.wait(ctx).answer() }

func (k *call) wait(ctx context.Context) outcome {
	if k.isOver() { // before it was waited for
		return k.result
	}
	return k.conn.link.wait(ctx, k)
}

// answer returns the outcome as wire.Call has it.
func (o outcome) answer() (*wire.Message, error) {
	if o.err != nil {
		return nil, o.err
	}
	return o.m, nil
}

// Then implements wire.Call, where answers arrive on the connection's read loop.
func (k *call) Then(done func(*wire.Message, error)) (giveUp func(), ok bool) {
	if k.conn.link.streams() {
		return nil, false
	}
	c := k.conn
	c.mu.Lock()
	underWay := c.calls[k.id] != nil
	if underWay {
		k.then = done
	}
	c.mu.Unlock()
	if !underWay {
		done(k.outcome().answer())
	}
	return func() { k.finish(outcome{err: &wire.CallError{Sent: true, Err: context.Canceled}}) }, true
}

// await waits for the answer to arrive on the connection's read loop.
func (k *call) await(ctx context.Context) outcome {
	select {
	case <-k.done():
		return k.result
	case <-ctx.Done():
		return k.giveUp(&wire.CallError{Sent: true, Err: ctx.Err()})
	}
}

// giveUp ends the call with err unless it has an outcome already.
func (k *call) giveUp(err *wire.CallError) outcome {
	k.finish(outcome{err: err})
	return k.outcome()
}

// outcome waits for the outcome of a call that has one, or is being given it.
func (k *call) outcome() outcome {
	if !k.isOver() {
		<-k.done()
	}
	return k.result
}

func (k *call) isOver() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.over
}

// done returns a channel that closes when the call has its outcome.
func (k *call) done() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ready == nil {
		k.ready = make(chan struct{})
		if k.over {
			close(k.ready)
		}
	}
	return k.ready
}

// finish gives the call its outcome, once: it reports false where it had one.
func (k *call) finish(o outcome) bool {
	if k.conn.take(k.id) == nil {
		return false
	}
	k.settle(o)
	return true
}

// settle hands an outcome on. The call is out of the table: nobody else does.
func (k *call) settle(o outcome) {
	if k.then != nil {
		k.then(o.answer())
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over, k.result = true, o
	if k.ready != nil {
		close(k.ready)
	}
}

// beginPost reports whether the call may be posted: it was not cancelled before.
func (k *call) beginPost() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.posted = !k.unsent
	return k.posted
}

// Cancel implements wire.Call. What was not posted yet never is.
func (k *call) Cancel(params []byte) {
	if k.conn.link.streams() {
		k.mu.Lock()
		k.unsent = k.unsent || !k.posted
		unsent := k.unsent
		k.mu.Unlock()
		if unsent {
			return
		}
	}
	if k.modern != nil {
		k.modern.life.End()
		return
	}
	raw := wire.NotificationMessage("notifications/cancelled", cancelParams(params, k.id))
	if err := k.conn.link.notify(raw); err != nil {
		k.conn.log().Debug("cancelling an upstream call", "error", err)
	}
}

// Overdue implements wire.Call: see [Conn.Suspect].
func (k *call) Overdue() { k.conn.Suspect() }

// cancelParams puts the upstream's id into the params of a cancellation.
func cancelParams(params []byte, id int64) []byte {
	number := strconv.AppendInt(nil, id, 10)
	var at wire.Span
	_ = wire.Members(params, func(name string, value wire.Span) error {
		if name == "requestId" {
			at = value
		}
		return nil
	})
	if !at.Present() {
		return append(append([]byte(`{"requestId":`), number...), '}')
	}
	return wire.Splice(params, wire.Edit{At: at, With: number})
}

// Take implements client.Sink for a call whose messages come on a stream of
// their own.
func (k *call) Take(raw []byte) bool { return k.conn.receive(raw, k) }

// Refused implements client.Sink.
func (k *call) Refused(raw []byte) bool {
	m, err := wire.Read(raw, wire.FromUpstream)
	if err != nil || m.Kind != wire.Failure {
		return false
	}
	if id, ok := number(m.Bytes(m.ID)); m.ID.Present() && !(ok && id == k.id) {
		return false
	}
	return k.keepMismatch(m) || k.finish(outcome{m: k.withID(m)})
}

// Paused implements client.Sink.
func (k *call) Paused(retry time.Duration) {
	if p, ok := k.tag.(wire.Pauser); ok {
		p.Pause(retry)
	}
}

// withID gives an error answer without an id the call's.
func (k *call) withID(m *wire.Message) *wire.Message {
	if m.ID.Present() {
		return m
	}
	raw := append([]byte(`{"jsonrpc":"2.0","id":`), strconv.FormatInt(k.id, 10)...)
	raw = append(append(raw, `,"error":`...), m.Bytes(m.Error)...)
	if full, err := wire.Read(append(raw, '}'), wire.FromUpstream); err == nil {
		return full
	}
	return m
}

// number reads an id or a token that the connection gave out.
func number(raw []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// tagged returns the tag of a call, nil for none.
func (k *call) tagged() any {
	if k == nil {
		return nil
	}
	return k.tag
}

// endedCall is a call on a connection that had ended before.
type endedCall struct{ err error }

// Wait implements wire.Call.
func (e endedCall) Wait(context.Context) (*wire.Message, error) {
	return nil, &wire.CallError{Err: e.err}
}

// Then implements wire.Call.
func (e endedCall) Then(done func(*wire.Message, error)) (giveUp func(), ok bool) {
	done(e.Wait(context.Background()))
	return func() {}, true
}

// Cancel implements wire.Call.
func (endedCall) Cancel([]byte) {}

// Overdue implements wire.Call.
func (endedCall) Overdue() {}
