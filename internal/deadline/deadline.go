// Package deadline says when work ends: deadlines that can be suspended, many of which share one
// timer, a context that is ended by hand, and instants of the monotonic clock.
package deadline

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// epoch is what instants are counted from.
var epoch = time.Now()

// Now returns an instant: the time since the process started. It is read off the monotonic
// clock alone, in half the time that time.Now takes.
func Now() time.Duration { return time.Since(epoch) }

// At returns the time of an instant.
func At(instant time.Duration) time.Time { return epoch.Add(instant) }

// Instant returns the instant of a time.
func Instant(t time.Time) time.Duration { return t.Sub(epoch) }

// Deadline expires once, and can be suspended. The zero Deadline never expires. It is safe for
// concurrent use.
type Deadline struct {
	mu        sync.Mutex // guards what follows
	timer     *Timer     // nil: it has not started
	left      time.Duration
	started   time.Time
	since     time.Time // when it was started, or resumed last
	suspended int       // how often, without having been resumed
	expired   bool      // or stopped
}

// Start has the deadline expire in d, of which a timer tells.
func (l *Deadline) Start(d time.Duration, t *Timer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = At(Now())
	l.left, l.since, l.timer = d, l.started, t
	l.setLocked()
}

// setLocked sets the timer, unless the deadline is suspended.
func (l *Deadline) setLocked() {
	if l.timer != nil && l.suspended == 0 && !l.expired {
		l.timer.Set(l.since.Add(l.left))
	}
}

// Expire reports whether the deadline has expired, once, else when it will unless it is
// suspended: the zero time if it is, or has not started.
func (l *Deadline) Expire(now time.Time) (expired bool, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil || l.suspended > 0 || l.expired {
		return false, time.Time{}
	}
	at = l.since.Add(l.left)
	l.expired = !at.After(now)
	return l.expired, at
}

// Started returns when the deadline was started, the zero time if it was not.
func (l *Deadline) Started() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started
}

// Ran is for how long the deadline has been running, 0 where it was not started.
func (l *Deadline) Ran() (ran time.Duration) {
	if started := l.Started(); !started.IsZero() {
		ran = time.Since(started)
	}
	return ran
}

// Suspend has the deadline not expire until Resume is called as often.
func (l *Deadline) Suspend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.suspended++; l.suspended == 1 {
		l.left -= time.Since(l.since)
	}
}

// Resume takes back one Suspend.
func (l *Deadline) Resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.suspended--; l.suspended == 0 {
		l.since, l.left = time.Now(), max(l.left, 0)
		l.setLocked()
	}
}

// Stop has the deadline never expire.
func (l *Deadline) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expired = true
}

// Timer is one timer of many deadlines: one for each would cost more than the rest of a call's
// way. It fires when the first of them may have expired; most were stopped until then. It is safe
// for concurrent use.
type Timer struct {
	Fire func() // looks at the deadlines, and sets the timer for those that have not expired

	at    atomic.Int64 // when it fires, an instant; 0: not. Written under the lock
	mu    sync.Mutex   // guards what follows
	timer *time.Timer
}

// Set has the timer fire at the time given, if not before.
func (t *Timer) Set(at time.Time) {
	if t.firesBy(at) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.firesBy(at) {
		return
	}
	t.at.Store(int64(Instant(at)))
	if t.timer == nil {
		t.timer = time.AfterFunc(time.Until(at), t.fired)
	} else {
		t.timer.Reset(time.Until(at))
	}
}

func (t *Timer) firesBy(at time.Time) bool {
	set := t.at.Load()
	return set != 0 && set <= int64(Instant(at))
}

// fired forgets the time before the deadlines are looked at: one that starts meanwhile sets it
// again.
func (t *Timer) fired() {
	t.mu.Lock()
	t.at.Store(0)
	t.mu.Unlock()
	t.Fire()
}

// Stop has the timer fire no more. No deadline of it may be started, or have yet to expire.
func (t *Timer) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
}

// Life is a context that is ended by hand. It costs a fraction of what the
// standard library's do, as it has no parent and makes no channel that nobody
// asks for. Its zero value is ready. It is safe for concurrent use.
type Life struct {
	mu    sync.Mutex // guards what follows
	done  chan struct{}
	ended bool
	last  uint64   // of the ids of functions
	first afterEnd // most have one
	more  []afterEnd
}

// afterEnd is a function to be called at the end; nil: none.
type afterEnd struct {
	id uint64
	f  func()
}

// Deadline implements context.Context: there is none.
func (*Life) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context: there is none.
func (*Life) Value(any) any { return nil }

// Err implements context.Context.
func (l *Life) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return context.Canceled
	}
	return nil
}

// Done implements context.Context.
func (l *Life) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.ended {
			close(l.done)
		}
	}
	return l.done
}

// End ends the context.
func (l *Life) End() {
	l.mu.Lock()
	first, more := l.first.f, l.more
	if !l.ended && l.done != nil {
		close(l.done)
	}
	l.ended, l.first, l.more = true, afterEnd{}, nil
	l.mu.Unlock()
	if first != nil {
		first()
	}
	for _, a := range more {
		a.f()
	}
}

// AfterFunc is what [context.AfterFunc] asks a context for. f is called by End, or now
// if that has been called, and must not block.
func (l *Life) AfterFunc(f func()) (stop func() bool) {
	l.mu.Lock()
	l.last++
	id, ended := l.last, l.ended
	switch {
	case ended:
	case l.first.f == nil:
		l.first = afterEnd{id, f}
	default:
		l.more = append(l.more, afterEnd{id, f})
	}
	l.mu.Unlock()
	if ended {
		f()
	}
	return func() bool { return l.drop(id) }
}

// drop reports whether a function is called no more for it.
func (l *Life) drop(id uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first.id == id {
		l.first = afterEnd{}
		return true
	}
	before := len(l.more)
	l.more = slices.DeleteFunc(l.more, func(a afterEnd) bool { return a.id == id })
	return len(l.more) < before
}

// AfterFunc is [context.AfterFunc], without its channel and goroutine where ctx is a
// [Life]: f must not block.
func AfterFunc(ctx context.Context, f func()) (stop func() bool) {
	if l, ok := ctx.(*Life); ok {
		return l.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}
