package streamhttp

import (
	"slices"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// session is one client's. Its mutex guards all of its streams as well; no
// method of wire.Session is called while it is held.
type session struct {
	srv     *Server
	id, tag string
	party   party        // whose it is
	run     string       // that its URL names
	key     string       // as ServerConfig.Key has it
	upper   wire.Session // set before anybody else can find the session
	version string       // likewise: the negotiated revision

	_       apart
	mu      sync.Mutex // guards what follows
	ended   bool
	used    bool  // there was a request after initialize
	busy    int   // requests under way
	last    int64 // when a request ended last, or lost its client, in ticks
	waiting *post // the POSTs that may become event streams, newest first
	own     outbox
	// streams are the POSTs that are or were event streams, by number; over
	// lists those of them that have ended, the oldest first.
	streams map[uint64]*outbox
	over    []*outbox
	numbers uint64 // the number of the stream opened last
	seq     uint64 // the number of the last event
	stored  int    // bytes kept for clients that are away
}

func newSession(srv *Server, by party) *session {
	s := &session{srv: srv, party: by, busy: 1, last: srv.clock.now.Load()}
	s.id, s.tag = newID()
	s.own.s = s
	return s
}

// enter marks the beginning of a request; false: the session has ended.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.busy++
	s.used = true
	return true
}

// leave marks a request's end.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveLocked()
}

func (s *session) leaveLocked() {
	s.busy--
	s.last = s.srv.clock.now.Load()
}

// end marks the session as ended and its GET streams as done. It reports
// whether it was the first to do so.
func (s *session) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.srv.stores.add(-s.stored)
	s.ended = true
	s.own.over = true
	s.own.wakeAll()
	return true
}

// sweep does what time brings, and says why the session is to end, if it is.
func (s *session) sweep(now int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg := &s.srv.cfg
	for p := s.waiting; p != nil; {
		older := p.older
		if now-p.since > ticks(cfg.Patience) {
			p.openLocked()
		}
		p = older
	}
	quiet := now - ticks(cfg.KeepAlive)
	s.own.beat(quiet)
	for _, b := range s.streams {
		b.beat(quiet)
		b.giveUp(now)
	}
	s.expire(now - ticks(cfg.StoreTime))
	switch {
	case s.busy > s.abandoned():
	case !s.used && now-s.last > ticks(cfg.Unused):
		return "its client has not used it (--session-unused)"
	case now-s.last > ticks(cfg.Idle):
		return "its client sends nothing any more (--session-idle)"
	}
	return ""
}

// abandoned is how many of the requests under way have lost their client: they
// keep no session alive.
func (s *session) abandoned() (n int) {
	for _, b := range s.streams {
		if !b.over && !b.attached() {
			n++
		}
	}
	return n
}

// expire forgets what was sent, and the streams that ended, up to a time.
func (s *session) expire(until int64) {
	for len(s.over) > 0 && s.over[0].overAt < until && s.over[0].awaits == 0 {
		s.forgetStream(0)
	}
	s.own.expire(until)
	for _, b := range s.streams {
		b.expire(until)
	}
}

// room makes room for n more bytes in the store by forgetting what is oldest,
// and reports whether there is enough. What was not sent yet on a stream that
// is still open is never forgotten.
func (s *session) room(n int) bool {
	for s.stored+n > s.srv.cfg.Store && s.forgetOldest() {
	}
	return s.stored+n <= s.srv.cfg.Store
}

// keep counts n more bytes as kept for clients that are away, or fewer.
func (s *session) keep(n int) {
	s.stored += n
	if n != 0 && !s.ended {
		s.srv.stores.add(n)
	}
}

// forgetOldest forgets an event that was sent, or a stream that has ended, and reports
// whether there was one.
func (s *session) forgetOldest() bool {
	if i := slices.IndexFunc(s.over, func(b *outbox) bool { return b.awaits == 0 }); i >= 0 {
		s.forgetStream(i)
		return true
	}
	oldest := s.own.oldestSent(nil)
	for _, b := range s.streams {
		oldest = b.oldestSent(oldest)
	}
	if oldest == nil {
		return false
	}
	oldest.forget(1)
	return true
}

// forgetStream forgets the stream at i of those that ended.
func (s *session) forgetStream(i int) {
	b := s.over[i]
	if i == 0 {
		s.over = s.over[1:]
	} else {
		s.over = slices.Delete(s.over, i, i+1)
	}
	if len(s.over) == 0 {
		s.over = nil
	}
	delete(s.streams, b.num)
	s.keep(-b.counted)
	b.counted, b.forgotten = 0, true
}

// openStream numbers a new event stream.
func (s *session) openStream() *outbox {
	s.numbers++
	b := &outbox{s: s, num: s.numbers}
	if s.streams == nil {
		s.streams = make(map[uint64]*outbox)
	}
	s.streams[b.num] = b
	return b
}

// primes reports whether clients of the session understand events without
// data.
func (s *session) primes() bool { return s.version >= revisionPriming }

// ownStream is the session's own stream: what belongs to no request.
type ownStream struct{ s *session }

func (o ownStream) Send(msg []byte) bool {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	return !o.s.ended && o.s.own.add(msg)
}

// Answer is Send: nobody asks on this stream.
func (o ownStream) Answer(msg []byte) {
	if msg != nil {
		o.Send(msg)
	}
}

func (o ownStream) Listening() bool {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	return !o.s.ended && o.s.own.attached()
}
