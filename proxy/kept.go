package proxy

import (
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// What a session keeps of its client's messages, it keeps to bring a new connection
// upstream to where the last one was. There may be thousands of sessions.
const (
	maxKept    = 256 << 10 // bytes of one message
	maxKeptAll = 64 << 20  // of all sessions; of messages beyond smallKept half of it
	smallKept  = 4 << 10   // the most that an ordinary message has
)

const (
	tooLarge = "this message is larger than 256 KiB, the most that a session keeps of it"
	tooMuch  = "sessions keep too much of such messages by now: send one of less than 4 KiB, or try again later"
)

// keptKind is of which message something is kept.
type keptKind uint8

const (
	keptInitialize keptKind = iota
	keptLevel
	keptKinds
)

// keptOf is what a session keeps, in bytes; it is guarded by the mutex of the Proxy's keeps.
type keptOf struct {
	bytes [keptKinds]int
	ended bool // the session has
}

// keeps counts what all sessions keep.
type keeps struct {
	mu    sync.Mutex // guards what follows
	total int
}

// keep counts a message that the session keeps in place of the last of its kind, and
// says why it cannot; "": it can.
func (s *session) keep(kind keptKind, m *wire.Message) (code int, refusal string) {
	size := len(m.Raw)
	if size > maxKept {
		return wire.CodeInvalidRequest, tooLarge
	}
	limit := maxKeptAll
	if size > smallKept {
		limit /= 2
	}
	if kind == keptInitialize {
		size *= 2 // as it came, and as it goes upstream
	}
	k := &s.p.keeps
	k.mu.Lock()
	defer k.mu.Unlock()
	more := size - s.kept.bytes[kind]
	switch {
	case s.kept.ended:
		return 0, ""
	case more > 0 && k.total+more > limit:
		return wire.CodeInternal, tooMuch
	}
	k.total += more
	s.kept.bytes[kind] = size
	return 0, ""
}

// keepNoMore gives back what the session keeps: it has ended.
func (s *session) keepNoMore() {
	k := &s.p.keeps
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range s.kept.bytes {
		k.total -= n
	}
	s.kept = keptOf{ended: true}
}
