package streamhttp

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// outlet is a connection on which an outbox is written as an event stream.
type outlet struct {
	eventWriter
	box  *outbox
	done chan struct{} // closed when w is written to no more

	first, last uint64 // the events taken last, for the writer alone

	// Guarded by the session's mutex:
	prime  bool // begin with an event without data
	opened bool // something was written
	// Behind the event until the client is told to come back after retry:
	pausing bool
	until   uint64
	retry   time.Duration
	paused  bool // that is done: write no more

	beat  bool  // silent for too long
	gone  bool  // write no more
	wrote int64 // when it was last written to, in ticks
}

func newOutlet(b *outbox, w http.ResponseWriter) *outlet {
	return &outlet{
		eventWriter: newEventWriter(w),
		box:         b, prime: b.s.primes(), wrote: b.s.srv.clock.now.Load(), done: make(chan struct{}),
	}
}

// run writes until the outbox is done, the client is gone, or another
// connection has taken the stream over.
func (o *outlet) run(ctx context.Context) {
	defer close(o.done)
	o.write(ctx, o)
}

// take implements eventSource, and keeps in mind which events it gives.
func (o *outlet) take(out []byte) []byte {
	b := o.box
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	o.first, o.last = 0, 0
	if o.gone || o.paused {
		return out
	}
	out = o.begin(out)
	now := b.s.srv.clock.now.Load()
	if b.owner() == o && b.next < len(b.records) {
		o.first = b.records[b.next].seq
		next := b.next
		for ; next < len(b.records) && len(out) < maxChunk; next++ {
			r := &b.records[next]
			if o.pausing && r.seq > o.until {
				break
			}
			out, o.last, r.at = b.appendEvent(out, r), r.seq, now
		}
		b.move(next)
		b.s.room(0)
	}
	if o.pausing && b.owner() == o && (b.next == len(b.records) || b.records[b.next].seq > o.until) {
		o.paused = true
		out = append(strconv.AppendInt(append(out, "retry: "...), o.retry.Milliseconds(), 10), "\n\n"...)
	}
	if len(out) == 0 && o.beat {
		out = append(out, ": keep-alive\n\n"...)
	}
	if len(out) > 0 {
		o.beat, o.wrote = false, now
	}
	return out
}

// begin appends what an event stream begins with: something, so that the
// headers go out, and an event id to resume from where clients understand it, with
// when to come back to a request's stream that breaks.
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
	out = b.appendID(append(out, "id: "...), seq)
	if b.num != 0 {
		out = append(out, "\nretry: 1000"...) // as clients do by themselves
	}
	return append(out, "\ndata: \n\n"...)
}

func (b *outbox) appendEvent(out []byte, r *record) []byte {
	out = append(out, "event: message\nid: "...)
	out = b.appendID(out, r.seq)
	out = append(out, "\ndata: "...)
	return append(append(out, wire.OneLine(r.msg)...), "\n\n"...)
}

// finished implements eventSource: it leaves the outbox that is done.
func (o *outlet) finished() bool {
	b := o.box
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	end := o.gone || o.paused || b.done()
	if end && !o.gone {
		o.gone = true
		b.detach(o)
	}
	return end
}

// leave implements eventSource: it takes the connection away from its outbox.
func (o *outlet) leave() {
	o.box.s.mu.Lock()
	defer o.box.s.mu.Unlock()
	if !o.gone {
		o.gone = true
		o.box.detach(o)
	}
}

// failed implements eventSource: it leaves the outbox. What was taken is to be sent
// again, unless another connection has gone on from there.
func (o *outlet) failed() {
	b := o.box
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if o.first > 0 && b.next > 0 && b.records[b.next-1].seq == o.last {
		b.rewind(o.first - 1)
	}
	if !o.gone {
		o.gone = true
		b.detach(o)
	}
}
