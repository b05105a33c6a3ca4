// Package notify turns changes into coalesced notifications: a change marks a
// bit, and what goes out is the bits, once, whatever number of changes set
// them. Notifications are levels, not edges.
package notify

import (
	"sync"
	"sync/atomic"
)

// Notifier holds the dirty bits of one session. Its methods are safe for
// concurrent use. The zero value is not usable; call [New].
type Notifier struct {
	send  func(bits uint8) bool
	dirty atomic.Uint32

	mu      sync.Mutex
	running bool // a flush is under way; guarded by mu
	again   bool // and was asked for once more; guarded by mu
}

// New returns a Notifier that gives its bits to send, which reports whether
// they went out. Those that did not stay dirty until the next [Notifier.Flush].
// send is never called by two goroutines at once, and may block.
func New(send func(bits uint8) bool) *Notifier { return &Notifier{send: send} }

// Mark makes bits dirty and sends them soon, on another goroutine. It never
// blocks.
func (n *Notifier) Mark(bits uint8) {
	if bits == 0 {
		return
	}
	n.dirty.Or(uint32(bits))
	n.Flush()
}

// Take clears the dirty bits and returns them to a caller that sends them
// itself.
func (n *Notifier) Take() uint8 {
	if n.dirty.Load() == 0 {
		return 0
	}
	return uint8(n.dirty.Swap(0))
}

// Flush tries to send the dirty bits, on another goroutine. It never blocks.
func (n *Notifier) Flush() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running {
		n.again = true // what it has taken may yet come back
		return
	}
	if n.dirty.Load() == 0 {
		return
	}
	n.running = true
	go n.flush()
}

// flush sends until nothing is dirty or nothing goes out though it was tried
// since the last Flush. It is owned by the Notifier and ends by itself: send
// returns.
func (n *Notifier) flush() {
	for {
		bits := n.Take()
		sent := bits == 0 || n.send(bits)
		if !sent {
			n.dirty.Or(uint32(bits))
		}
		if !n.more(sent) {
			return
		}
	}
}

// more reports whether there is something to try again, else ends the flush.
func (n *Notifier) more(sent bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running = (sent || n.again) && n.dirty.Load() != 0
	n.again = false
	return n.running
}
