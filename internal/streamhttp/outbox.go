package streamhttp

import (
	"strconv"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// outbox is what goes to a client on one event stream: the events not sent
// yet, and before them those that were and are kept in case the client comes
// back for them. Its methods are to be called with the session's mutex held.
//
// However many connections are attached, only the newest is written to.
type outbox struct {
	s       *session
	num     uint64 // 0: the session's own stream
	records []record
	next    int       // records[next:] are still to be sent
	sent    int       // size of records[:next]
	queued  int       // size of records[next:]
	counted int       // what of both is counted in the session's store
	outlets []*outlet // connections to write to, the newest last

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

// recordCost is what a record takes besides its message.
const recordCost = 64

func (r *record) size() int { return len(r.msg) + recordCost }

func (b *outbox) attached() bool { return len(b.outlets) > 0 }

// claimed reports whether somebody is about to take what is to be sent: it does not
// count in the session's store.
func (b *outbox) claimed() bool { return b.attached() || b.awaits > 0 }

// add appends an event. It reports false, the outbox unchanged, where nobody
// listens and the store is full, and closes the stream of a client that does
// not read.
func (b *outbox) add(msg []byte) bool {
	size := len(msg) + recordCost
	if b.claimed() && b.queued > b.s.srv.cfg.Queue {
		b.s.srv.cfg.Log.Debug("event stream closed: the client does not read", "session", b.s.tag)
		b.detachAll()
	}
	if !b.claimed() && !b.s.room(size) {
		return false
	}
	b.append(msg)
	return true
}

// addLast appends the answer, the last event. Where the client is away and
// there is no room for it, it becomes an error that says so.
func (b *outbox) addLast(msg []byte) {
	if !b.add(msg) {
		b.forget(len(b.records))
		if !b.s.room(len(msg) + recordCost) {
			b.s.srv.cfg.Log.Warn("answer dropped: the client is away and the store is full", "session", b.s.tag, "bytes", len(msg))
			msg = droppedAnswer(msg)
		}
		b.append(msg)
	}
	b.finish()
}

func droppedAnswer(msg []byte) []byte {
	var id []byte
	if m, err := wire.Read(msg, wire.FromUpstream); err == nil {
		id = m.Bytes(m.ID)
	}
	return wire.ErrorAnswer(id, wire.CodeInternal, "the request was answered, but the answer of "+strconv.Itoa(len(msg))+
		" bytes is too large to be kept while the client is away", nil)
}

func (b *outbox) append(msg []byte) {
	b.s.seq++
	b.records = append(b.records, record{seq: b.s.seq, msg: msg})
	b.queued += len(msg) + recordCost
	b.settle()
	b.wake()
}

// finish marks the end of a request's stream.
func (b *outbox) finish() {
	if b.over {
		return
	}
	b.over, b.overAt = true, b.s.srv.clock.now.Load()
	b.s.over = append(b.s.over, b)
	b.wakeAll()
}

// done reports whether everything was sent.
func (b *outbox) done() bool { return b.over && b.next == len(b.records) }

// settle counts in the session's store what is not on its way to a client.
func (b *outbox) settle() {
	count := b.sent
	if !b.claimed() {
		count += b.queued
	}
	if b.forgotten {
		count = 0
	}
	b.s.keep(count - b.counted)
	b.counted = count
}

// move changes which record is sent next.
func (b *outbox) move(next int) {
	for ; b.next < next; b.next++ {
		b.sent += b.records[b.next].size()
		b.queued -= b.records[b.next].size()
	}
	for ; b.next > next; b.next-- {
		b.sent -= b.records[b.next-1].size()
		b.queued += b.records[b.next-1].size()
	}
	b.settle()
}

// rewind moves to the first event after seq.
func (b *outbox) rewind(seq uint64) {
	next := 0
	for next < len(b.records) && b.records[next].seq <= seq {
		next++
	}
	b.move(next)
}

// forget drops the first n records.
func (b *outbox) forget(n int) {
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
	b.settle()
}

// expire forgets what was sent up to a time.
func (b *outbox) expire(until int64) {
	n := 0
	for n < b.next && b.records[n].at < until {
		n++
	}
	if n > 0 {
		b.forget(n)
	}
}

// oldestSent returns the one of b and other whose first event is older, of
// those whose first event was sent.
func (b *outbox) oldestSent(other *outbox) *outbox {
	if b.next == 0 || other != nil && other.records[0].seq < b.records[0].seq {
		return other
	}
	return b
}

// attach makes o the connection that is written to.
func (b *outbox) attach(o *outlet) {
	b.outlets = append(b.outlets, o)
	b.settle()
}

// detach takes a connection away; what it was not given is the next one's.
func (b *outbox) detach(o *outlet) {
	for i, other := range b.outlets {
		if other == o {
			b.outlets = append(b.outlets[:i], b.outlets[i+1:]...)
			break
		}
	}
	b.settled()
	b.wake()
}

// detachAll takes all connections away.
func (b *outbox) detachAll() {
	for _, o := range b.outlets {
		o.gone = true
		o.signal()
	}
	b.outlets, b.awaits = nil, 0
	b.settled()
}

// pause has the connection that is written to end behind what there is by now, with
// the client told to come back after retry. What comes meanwhile is kept for it, as for
// one that is slow to read.
func (b *outbox) pause(retry time.Duration) {
	if !b.claimed() {
		return
	}
	b.awaits = b.s.srv.clock.now.Load() + ticks(retry+latest)
	if o := b.owner(); o != nil {
		o.pausing, o.until, o.retry = true, b.s.seq, retry
		o.signal()
	}
}

// latest is how much later than it was told to a client may come back.
const latest = 30 * time.Second

// giveUp waits no more for a client that has not come back by now.
func (b *outbox) giveUp(now int64) {
	if b.awaits > 0 && b.awaits < now {
		b.awaits = 0
		b.settled()
	}
}

// settled settles after a connection has gone, and keeps the store within its
// bound: where nothing else is left to forget, by what waits here for a client
// that has gone away.
func (b *outbox) settled() {
	b.s.last = b.s.srv.clock.now.Load()
	b.settle()
	for !b.s.room(0) && len(b.records) > 0 && !b.claimed() {
		b.forget(1)
	}
}

// takeOver makes o the only connection, whatever was attached before.
func (b *outbox) takeOver(o *outlet) {
	old := b.outlets
	b.outlets, b.awaits = []*outlet{o}, 0
	b.settle()
	for _, other := range old {
		other.gone = true
		other.signal()
	}
}

// owner is the connection that is written to.
func (b *outbox) owner() *outlet {
	if n := len(b.outlets); n > 0 {
		return b.outlets[n-1]
	}
	return nil
}

func (b *outbox) wake() {
	if o := b.owner(); o != nil {
		o.signal()
	}
}

func (b *outbox) wakeAll() {
	for _, o := range b.outlets {
		o.signal()
	}
}

// beat has connections that were silent for too long say something.
func (b *outbox) beat(since int64) {
	for _, o := range b.outlets {
		if o.wrote <= since {
			o.beat = true
			o.signal()
		}
	}
}

// An event's id is the session's tag, the stream's number and the event's:
// no id of another session means anything here.

func (b *outbox) appendID(out []byte, seq uint64) []byte {
	out = append(append(out, b.s.tag...), '.')
	out = append(strconv.AppendUint(out, b.num, 36), '.')
	return strconv.AppendUint(out, seq, 36)
}

// find returns the stream of an event id, and the event's number; nil where
// the id is none of the session's, or its stream is forgotten.
func (s *session) find(id string) (*outbox, uint64) {
	rest, ok := strings.CutPrefix(id, s.tag+".")
	if !ok {
		return nil, 0
	}
	first, second, _ := strings.Cut(rest, ".")
	num, err := strconv.ParseUint(first, 36, 64)
	seq, err2 := strconv.ParseUint(second, 36, 64)
	if err != nil || err2 != nil || seq > s.seq {
		return nil, 0
	}
	if num == 0 {
		return &s.own, seq
	}
	return s.streams[num], seq
}
