package surface

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

// Kind is of which message something is kept.
type Kind uint8

// The kinds.
const (
	Initialize Kind = iota
	Level
	kinds
)

// Kept is what one session keeps, in bytes; it is guarded by the mutex of its Keeps.
type Kept struct {
	bytes [kinds]int
	ended bool // the session has
}

// Keeps counts what all sessions keep. It is safe for concurrent use.
type Keeps struct {
	mu    sync.Mutex // guards what follows
	total int
}

// Keep counts a message that a session keeps in place of the last of its kind, and
// says why it cannot; "": it can.
func (k *Keeps) Keep(of *Kept, kind Kind, m *wire.Message) (code int, refusal string) {
	size := len(m.Raw)
	if size > maxKept {
		return wire.CodeInvalidRequest, tooLarge
	}
	limit := maxKeptAll
	if size > smallKept {
		limit /= 2
	}
	if kind == Initialize {
		size *= 2 // as it came, and as it goes upstream
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	more := size - of.bytes[kind]
	switch {
	case of.ended:
		return 0, ""
	case more > 0 && k.total+more > limit:
		return wire.CodeInternal, tooMuch
	}
	k.total += more
	of.bytes[kind] = size
	return 0, ""
}

// Drop gives back what a session keeps that has ended.
func (k *Keeps) Drop(of *Kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range of.bytes {
		k.total -= n
	}
	*of = Kept{ended: true}
}
