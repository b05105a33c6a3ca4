package streamhttp

import (
	"context"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// soloEvents is what goes to a client on a POST's event stream. Events have no
// ids: what the client does not take is lost to it. The solo's mutex guards
// all but the writer.
type soloEvents struct {
	eventWriter
	x    *solo
	done chan struct{} // closed when w is written to no more
	once bool          // run was called, by the goroutine that serves the solo

	queue  [][]byte // still to be sent
	queued int      // bytes in queue
	opened bool     // something was written
	over   bool     // there will be no more events
	gone   bool     // write no more
	beat   bool     // silent for too long
	wrote  int64    // when it was last written to, in ticks
}

func newSoloEvents(x *solo) *soloEvents {
	return &soloEvents{
		eventWriter: newEventWriter(x.w),
		x:           x, wrote: x.s.clock.now.Load(), done: make(chan struct{}),
	}
}

// run writes until all is sent or the client is gone.
func (e *soloEvents) run(ctx context.Context) {
	if e.once {
		return
	}
	e.once = true
	defer close(e.done)
	e.write(ctx, e)
}

// addLocked queues an event. It reports false where the client does not read, and
// the stream is closed.
func (e *soloEvents) addLocked(msg []byte) bool {
	switch {
	case e.gone:
		return false
	case e.queued > e.x.s.cfg.Queue:
		e.x.s.cfg.Log.Debug("event stream closed: the client does not read", "network", e.x.party.network)
		e.gone = true
		e.signal()
		return false
	}
	e.appendLocked(msg)
	return true
}

func (e *soloEvents) appendLocked(msg []byte) {
	e.queue = append(e.queue, msg)
	e.queued += len(msg) + recordCost
	e.signal()
}

// endLocked ends the stream with an answer, or without one where it is nil.
func (e *soloEvents) endLocked(msg []byte) {
	e.over = true
	if msg != nil {
		e.appendLocked(msg)
	}
	e.signal()
}

// beatLocked has a stream that was silent for too long say something.
func (e *soloEvents) beatLocked(since int64) {
	if e.wrote <= since {
		e.beat = true
		e.signal()
	}
}

// take implements eventSource.
func (e *soloEvents) take(out []byte) []byte {
	e.x.mu.Lock()
	defer e.x.mu.Unlock()
	if e.gone {
		return out
	}
	n := 0
	for ; n < len(e.queue) && len(out) < maxChunk; n++ {
		out = append(out, "event: message\ndata: "...)
		out = append(append(out, wire.OneLine(e.queue[n])...), "\n\n"...)
		e.queued -= len(e.queue[n]) + recordCost
		e.queue[n] = nil
	}
	if e.queue = e.queue[n:]; len(e.queue) == 0 {
		e.queue = nil
	}
	if len(out) == 0 && (e.beat || !e.opened && !e.over) {
		out = append(out, ": keep-alive\n\n"...)
	}
	if len(out) > 0 {
		e.beat, e.opened, e.wrote = false, true, e.x.s.clock.now.Load()
	}
	return out
}

// finished implements eventSource.
func (e *soloEvents) finished() bool {
	e.x.mu.Lock()
	defer e.x.mu.Unlock()
	return e.gone || e.over && len(e.queue) == 0
}

// failed implements eventSource.
func (e *soloEvents) failed() { e.leave() }

// leave implements eventSource: with its stream the client has closed the request.
func (e *soloEvents) leave() {
	e.x.mu.Lock()
	e.gone, e.queue, e.queued = true, nil, 0
	e.x.mu.Unlock()
	e.x.cancel()
}
