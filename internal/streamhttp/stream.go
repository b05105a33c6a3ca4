package streamhttp

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

const (
	// maxWrite is about how much is written at once; a message is never split.
	maxWrite = 64 << 10
	// recordCost is what a record takes besides its message.
	recordCost = 64
	// streamCost is what a stream takes that has ended, besides its events: a call that was cancelled has none.
	streamCost = 256
	// lateness is how much later than it was told to a client may come back.
	lateness = 30 * time.Second
)

// stream is what goes to a client as events. Its methods are to be called with its mutex held.
//
// In a session it has the events not sent yet, and before them those that were and are
// kept in case the client comes back for them. However many connections there are to write it
// on, only the newest is written to. In the modern era it has one connection, its events have
// no ids, and what the client does not take is lost to it.
type stream struct {
	srv     *Server
	mu      *sync.Mutex // the session's, or the POST's
	ses     *session    // nil: the modern era
	num     uint64      // 0: the session's own stream
	asked   []byte      // the id of the request that it is of; nil: of none, or too long a one for event ids
	records []record
	next    int            // records[next:] are still to be sent
	sent    int            // size of records[:next]
	queued  int            // size of records[next:]
	counted int            // what of both is counted in the session's store
	writers []*eventWriter // on connections, the newest last

	over      bool // there will be no more events
	overAt    int64
	forgotten bool
	awaits    int64 // up to when a client that was told to come back is waited for, in ticks; 0: none was
}

// record is an event.
type record struct {
	seq uint64
	at  int64 // when it was sent, in ticks
	msg []byte
}

func (r *record) size() int { return len(r.msg) + recordCost }

func (b *stream) attached() bool { return len(b.writers) > 0 }

// expected reports whether somebody is about to take what is to be sent: it does not
// count in the session's store.
func (b *stream) expected() bool { return b.attached() || b.awaits > 0 }

// room reports whether there is room to keep n more bytes.
func (b *stream) room(n int) bool { return b.ses != nil && b.ses.room(n) }

// add appends an event. It reports false, the stream unchanged, where nobody
// listens and the store is full, and closes the stream of a client that does
// not read.
func (b *stream) add(msg []byte) bool {
	if b.expected() && b.queued > b.srv.cfg.Queue {
		tag := "none"
		if b.ses != nil {
			tag = b.ses.tag
		}
		b.srv.cfg.Log.Debug("event stream closed: the client does not read", "session", tag)
		b.detachAll()
	}
	if !b.expected() && !b.room(len(msg)+recordCost) {
		return false
	}
	b.append(msg)
	return true
}

// addLast appends the answer, the last event. Where the client is away and
// there is no room for it, it becomes an error that says so.
func (b *stream) addLast(msg []byte) {
	switch {
	case b.ses == nil:
		if b.attached() {
			b.append(msg)
		}
	case !b.add(msg):
		b.forget(len(b.records))
		if !b.room(len(msg) + recordCost) {
			b.srv.cfg.Log.Warn("answer dropped: the client is away and the store is full", "session", b.ses.tag, "bytes", len(msg))
			var id []byte
			if m, err := wire.Read(msg, wire.FromUpstream); err == nil {
				id = m.Bytes(m.ID)
			}
			msg = wire.ErrorAnswer(id, wire.CodeInternal, "the request was answered, but the answer of "+strconv.Itoa(len(msg))+
				" bytes is too large to be kept while the client is away", nil)
		}
		b.append(msg)
	}
	b.finish()
}

func (b *stream) append(msg []byte) {
	var seq uint64
	if b.ses != nil {
		b.ses.seq++
		seq = b.ses.seq
	}
	b.records = append(b.records, record{seq: seq, msg: msg})
	b.queued += len(msg) + recordCost
	b.count()
	b.wake()
}

// finish marks the end of a request's stream.
func (b *stream) finish() {
	if b.over {
		return
	}
	b.over, b.overAt = true, b.srv.clock.now.Load()
	if b.ses != nil {
		b.ses.over = append(b.ses.over, b)
		b.count()
		b.room(0)
	}
	b.wakeAll()
}

// done reports whether everything was sent.
func (b *stream) done() bool { return b.over && b.next == len(b.records) }

// count counts in the session's store what is not on its way to a client.
func (b *stream) count() {
	if b.ses == nil {
		return
	}
	n := b.sent
	if !b.expected() {
		n += b.queued
	}
	if b.over {
		n += streamCost
	}
	if b.forgotten {
		n = 0
	}
	b.ses.keep(n - b.counted)
	b.counted = n
}

// move changes which record is sent next.
func (b *stream) move(next int) {
	for ; b.next < next; b.next++ {
		b.sent += b.records[b.next].size()
		b.queued -= b.records[b.next].size()
	}
	for ; b.next > next; b.next-- {
		b.sent -= b.records[b.next-1].size()
		b.queued += b.records[b.next-1].size()
	}
	b.count()
}

// rewind moves to the first event after seq.
func (b *stream) rewind(seq uint64) {
	next := 0
	for next < len(b.records) && b.records[next].seq <= seq {
		next++
	}
	b.move(next)
}

// forget drops the first n records.
func (b *stream) forget(n int) {
	if n > b.next {
		b.move(n)
	}
	for i := range n {
		b.sent -= b.records[i].size()
		b.records[i].msg = nil
	}
	b.next -= n
	if b.records = b.records[n:]; len(b.records) == 0 {
		b.records = nil
	}
	b.count()
}

// expire forgets what was sent up to a time.
func (b *stream) expire(until int64) {
	n := 0
	for n < b.next && b.records[n].at < until {
		n++
	}
	if n > 0 {
		b.forget(n)
	}
}

// attach makes w the connection that is written to.
func (b *stream) attach(w *eventWriter) {
	b.writers = append(b.writers, w)
	b.count()
}

// detach takes a connection away; what it was not given is the next one's.
func (b *stream) detach(w *eventWriter) {
	if i := slices.Index(b.writers, w); i >= 0 {
		b.writers = slices.Delete(b.writers, i, i+1)
	}
	b.left()
	b.wake()
}

// detachAll takes all connections away.
func (b *stream) detachAll() {
	for _, w := range b.writers {
		w.gone = true
		w.signal()
	}
	b.writers, b.awaits = nil, 0
	b.left()
}

// left counts anew after a connection has gone, and keeps the store within its
// bound: where nothing else is left to forget, by what waits here for a client
// that has gone away.
func (b *stream) left() {
	if b.ses != nil {
		b.ses.last = b.srv.clock.now.Load()
	}
	b.count()
	for !b.room(0) && len(b.records) > 0 && !b.expected() {
		b.forget(1)
	}
}

// takeOver makes w the only connection, whatever was attached before.
func (b *stream) takeOver(w *eventWriter) {
	old := b.writers
	b.writers, b.awaits = []*eventWriter{w}, 0
	b.count()
	for _, other := range old {
		other.gone = true
		other.signal()
	}
}

// pause has the connection that is written to end behind what there is by now, with
// the client told to come back after retry. What comes meanwhile is kept for it, as for
// one that is slow to read.
func (b *stream) pause(retry time.Duration) {
	if !b.expected() {
		return
	}
	b.awaits = b.srv.clock.now.Load() + ticks(retry+lateness)
	if w := b.newest(); w != nil {
		w.pausing, w.until, w.retry = true, b.ses.seq, retry
		w.signal()
	}
}

// giveUp waits no more for a client that has not come back by now.
func (b *stream) giveUp(now int64) {
	if b.awaits > 0 && b.awaits < now {
		b.awaits = 0
		b.left()
	}
}

// newest is the connection that is written to.
func (b *stream) newest() *eventWriter {
	if n := len(b.writers); n > 0 {
		return b.writers[n-1]
	}
	return nil
}

func (b *stream) wake() {
	if w := b.newest(); w != nil {
		w.signal()
	}
}

func (b *stream) wakeAll() {
	for _, w := range b.writers {
		w.signal()
	}
}

// keepAlive has connections that were silent for too long say something.
func (b *stream) keepAlive(since int64) {
	for _, w := range b.writers {
		if w.wrote <= since {
			w.silent = true
			w.signal()
		}
	}
}

// An event's id is the session's tag with its life, the stream's number and the event's: no id of another session, or from
// before a restart, means anything here. Where the request's answer is still to come, its id follows: who asks for that
// after a restart is told under it that there is none.
func (b *stream) appendID(out []byte, seq uint64, answered bool) []byte {
	out = append(append(out, b.ses.life...), '.')
	out = append(strconv.AppendUint(out, b.num, 36), '.')
	out = strconv.AppendUint(out, seq, 36)
	if b.asked != nil && !answered {
		out = base64.RawURLEncoding.AppendEncode(append(out, '.'), b.asked)
	}
	return out
}

// maxAsked is how long a request's id is at most that event ids have.
const maxAsked = 64

func (b *stream) appendEvent(out []byte, r *record) []byte {
	out = append(out, "event: message\n"...)
	if b.ses != nil {
		last := b.over && r == &b.records[len(b.records)-1]
		out = append(b.appendID(append(out, "id: "...), r.seq, last), '\n')
	}
	return append(append(append(out, "data: "...), wire.OneLine(r.msg)...), "\n\n"...)
}

// eventWriter writes a stream on one connection.
type eventWriter struct {
	w      http.ResponseWriter
	stream *stream
	lost   func()        // told that the client is gone; nil: nobody is
	wake   chan struct{} // there may be something to write
	done   chan struct{} // closed when w is written to no more

	first, last uint64 // the events taken last, for the writer alone

	// Guarded by the stream's mutex:
	prime  bool // begin with an event without data
	opened bool // something was written
	// Behind the event until the client is told to come back after retry:
	pausing bool
	until   uint64
	retry   time.Duration
	paused  bool // that is done: write no more

	silent bool  // for too long
	gone   bool  // write no more
	wrote  int64 // when it was last written to, in ticks
}

func newEventWriter(b *stream, w http.ResponseWriter) *eventWriter {
	return &eventWriter{
		w: w, stream: b, prime: b.ses != nil && b.ses.primes(), wrote: b.srv.clock.now.Load(),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

func (w *eventWriter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// writeBuffers are for what is written at once.
var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// run writes until the stream is done, the client is gone, or another
// connection has taken the stream over. A second call does nothing.
func (w *eventWriter) run(ctx context.Context) {
	select {
	case <-w.done:
		return
	default:
		defer close(w.done)
	}
	rc := http.NewResponseController(w.w)
	h := w.w.Header()
	h["Content-Type"] = valueEvents
	h["Cache-Control"] = valueNoCache
	h["X-Accel-Buffering"] = valueNo
	for w.write(rc) {
		select {
		case <-w.wake:
		case <-ctx.Done():
			w.leave()
			return
		}
	}
}

// write writes all there is, and reports whether there may be more.
func (w *eventWriter) write(rc *http.ResponseController) (more bool) {
	buf := writeBuffers.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= 2*maxWrite {
			writeBuffers.Put(buf)
		}
	}()
	for {
		*buf = w.take((*buf)[:0])
		if len(*buf) == 0 {
			return !w.finished()
		}
		_, err := w.w.Write(*buf)
		if err == nil {
			err = rc.Flush()
		}
		if err != nil {
			w.failed()
			return false
		}
	}
}

// take appends what is to be written next to out, and keeps in mind which events that are.
func (w *eventWriter) take(out []byte) []byte {
	b := w.stream
	b.mu.Lock()
	defer b.mu.Unlock()
	w.first, w.last = 0, 0
	if w.gone || w.paused {
		return out
	}
	out = w.begin(out)
	now := b.srv.clock.now.Load()
	if b.newest() == w && b.next < len(b.records) {
		w.first = b.records[b.next].seq
		next := b.next
		for ; next < len(b.records) && len(out) < maxWrite; next++ {
			r := &b.records[next]
			if w.pausing && r.seq > w.until {
				break
			}
			out, w.last, r.at = b.appendEvent(out, r), r.seq, now
		}
		b.move(next)
		if b.ses == nil {
			b.forget(next)
		} else {
			b.room(0)
		}
	}
	if w.pausing && b.newest() == w && (b.next == len(b.records) || b.records[b.next].seq > w.until) {
		w.paused = true
		out = append(strconv.AppendInt(append(out, "retry: "...), w.retry.Milliseconds(), 10), "\n\n"...)
	}
	if len(out) == 0 && w.silent {
		out = append(out, ": keep-alive\n\n"...)
	}
	if len(out) > 0 {
		w.silent, w.wrote = false, now
	}
	return out
}

// begin appends what an event stream begins with: something, so that the
// headers go out, and an event id to resume from where clients understand it, with
// when to come back to a request's stream that breaks.
func (w *eventWriter) begin(out []byte) []byte {
	if w.opened {
		return out
	}
	w.opened = true
	b := w.stream
	waiting := b.next < len(b.records)
	switch {
	case b.ses == nil && (waiting || b.over):
		return out
	case b.ses == nil:
		return append(out, ": keep-alive\n\n"...)
	case waiting && b.num == 0 || !w.prime:
		return append(out, ": ok\n\n"...)
	}
	b.ses.seq++
	seq := b.ses.seq
	if waiting { // its number must be below theirs
		seq = b.records[b.next].seq
		for i := b.next; i < len(b.records); i++ {
			b.records[i].seq++
		}
	}
	out = b.appendID(append(out, "id: "...), seq, false)
	if b.num != 0 {
		out = append(out, "\nretry: 1000"...) // as clients do by themselves
	}
	return append(out, "\ndata: \n\n"...)
}

// finished reports whether nothing more will come, and leaves the stream then.
func (w *eventWriter) finished() bool {
	b := w.stream
	b.mu.Lock()
	defer b.mu.Unlock()
	end := w.gone || w.paused || b.done()
	if end {
		w.leaveLocked()
	}
	return end
}

// leave takes the connection away from its stream, since the client is gone.
func (w *eventWriter) leave() {
	w.stream.mu.Lock()
	w.leaveLocked()
	w.stream.mu.Unlock()
	if w.lost != nil {
		w.lost()
	}
}

func (w *eventWriter) leaveLocked() {
	if !w.gone {
		w.gone = true
		w.stream.detach(w)
	}
}

// failed is leave where the client has not got what was taken last: it is to be sent
// again, unless another connection has gone on from there.
func (w *eventWriter) failed() {
	b := w.stream
	b.mu.Lock()
	if w.first > 0 && b.next > 0 && b.records[b.next-1].seq == w.last {
		b.rewind(w.first - 1)
	}
	b.mu.Unlock()
	w.leave()
}
