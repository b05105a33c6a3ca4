package streamhttp

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// outlet is a connection on which an outbox is written as an event stream.
type outlet struct {
	box  *outbox
	w    http.ResponseWriter
	wake chan struct{}
	done chan struct{} // closed when w is written to no more

	// Guarded by the session's mutex:
	prime  bool  // begin with an event without data
	opened bool  // something was written
	beat   bool  // silent for too long
	gone   bool  // write no more
	wrote  int64 // when it was last written to, in ticks
}

func newOutlet(b *outbox, w http.ResponseWriter) *outlet {
	return &outlet{
		box: b, w: w, prime: b.s.primes(), wrote: b.s.srv.clock.now.Load(),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

func (o *outlet) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// chunks are buffers for what is written at once.
var chunks = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// maxChunk is about how much is written at once; a message is never split.
const maxChunk = 64 << 10

// run writes until the outbox is done, the client is gone, or another
// connection has taken the stream over.
func (o *outlet) run(ctx context.Context) {
	defer close(o.done)
	rc := http.NewResponseController(o.w)
	h := o.w.Header()
	h["Content-Type"] = valueEvents
	h["Cache-Control"] = valueNoCache
	h["X-Accel-Buffering"] = valueNo
	defer o.allow(ctx, rc)
	for {
		more, err := o.pass(rc)
		if !more || err != nil {
			return
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			o.leave()
			return
		}
	}
}

// allow gives the end of the response its time. The next request of the
// connection sets a deadline of its own, where the server sets any.
func (o *outlet) allow(ctx context.Context, rc *http.ResponseController) {
	var until time.Time
	if srv, ok := ctx.Value(http.ServerContextKey).(*http.Server); ok && srv.WriteTimeout > 0 {
		until = time.Now().Add(o.box.s.srv.cfg.WriteTimeout)
	}
	_ = rc.SetWriteDeadline(until)
}

// pass writes all there is.
func (o *outlet) pass(rc *http.ResponseController) (more bool, err error) {
	buf := chunks.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= 2*maxChunk {
			chunks.Put(buf)
		}
	}()
	for {
		chunk, first, last := o.take((*buf)[:0])
		*buf = chunk
		if len(chunk) == 0 {
			return !o.finished(), nil
		}
		_ = rc.SetWriteDeadline(time.Now().Add(o.box.s.srv.cfg.WriteTimeout))
		if _, err = o.w.Write(chunk); err == nil {
			err = rc.Flush()
		}
		if err != nil {
			o.giveBack(first, last)
			return false, err
		}
	}
}

// take appends what is to be written next, and says which events that is.
func (o *outlet) take(out []byte) (chunk []byte, first, last uint64) {
	b := o.box
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if o.gone {
		return out, 0, 0
	}
	out = o.begin(out)
	now := b.s.srv.clock.now.Load()
	if b.owner() == o && b.next < len(b.records) {
		first = b.records[b.next].seq
		next := b.next
		for ; next < len(b.records) && len(out) < maxChunk; next++ {
			r := &b.records[next]
			out, last, r.at = b.appendEvent(out, r), r.seq, now
		}
		b.move(next)
		b.s.room(0)
	}
	if len(out) == 0 && o.beat {
		out = append(out, ": keep-alive\n\n"...)
	}
	if len(out) > 0 {
		o.beat, o.wrote = false, now
	}
	return out, first, last
}

// begin appends what an event stream begins with: something, so that the
// headers go out, and an event id to resume from where clients understand it.
func (o *outlet) begin(out []byte) []byte {
	if o.opened {
		return out
	}
	o.opened = true
	b := o.box
	if b.next < len(b.records) && b.num == 0 || !o.prime {
		return append(out, ": ok\n\n"...)
	}
	b.s.seq++
	seq := b.s.seq
	if b.next < len(b.records) { // its number must be below theirs
		seq = b.records[b.next].seq
		for i := b.next; i < len(b.records); i++ {
			b.records[i].seq++
		}
	}
	return append(b.appendID(append(out, "id: "...), seq), "\ndata: \n\n"...)
}

func (b *outbox) appendEvent(out []byte, r *record) []byte {
	out = append(out, "event: message\nid: "...)
	out = b.appendID(out, r.seq)
	out = append(out, "\ndata: "...)
	return append(append(out, wire.OneLine(r.msg)...), "\n\n"...)
}

// finished reports whether nothing more will come, and leaves the outbox then.
func (o *outlet) finished() bool {
	b := o.box
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	end := o.gone || b.done()
	if end && !o.gone {
		o.gone = true
		b.detach(o)
	}
	return end
}

// leave takes the connection away from its outbox.
func (o *outlet) leave() {
	o.box.s.mu.Lock()
	defer o.box.s.mu.Unlock()
	if !o.gone {
		o.gone = true
		o.box.detach(o)
	}
}

// giveBack leaves the outbox after a write that failed: what it was given is
// to be sent again, unless another connection has gone on from there.
func (o *outlet) giveBack(first, last uint64) {
	b := o.box
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if first > 0 && b.next > 0 && b.records[b.next-1].seq == last {
		b.rewind(first - 1)
	}
	if !o.gone {
		o.gone = true
		b.detach(o)
	}
}
