package proxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// clock runs out once, and can be stopped for a while. The zero clock never
// runs out.
type clock struct {
	mu    sync.Mutex // guards what follows
	alarm *alarm     // nil: it has not begun
	left  time.Duration
	since time.Time // when it last began to run
	first time.Time
	holds int // how many want it stopped
	out   bool
}

// epoch is what instants are counted from. They are read off the monotonic clock
// alone, in half the time that time.Now takes.
var epoch = time.Now()

func instant() time.Duration { return time.Since(epoch) }

// begin has the clock run out in d, of which a tells.
func (k *clock) begin(d time.Duration, a *alarm) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.first = epoch.Add(instant())
	k.left, k.since, k.alarm = d, k.first, a
	k.setLocked()
}

// setLocked sets the alarm if the clock runs.
func (k *clock) setLocked() {
	if k.alarm != nil && k.holds == 0 && !k.out {
		k.alarm.set(k.since.Add(k.left))
	}
}

// runOut reports whether the clock runs out, once, else when it will if it runs
// on: the zero time if it does not run.
func (k *clock) runOut(now time.Time) (out bool, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.alarm == nil || k.holds > 0 || k.out {
		return false, time.Time{}
	}
	at = k.since.Add(k.left)
	k.out = !at.After(now)
	return k.out, at
}

// started is when the clock began, the zero time if it has not.
func (k *clock) started() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.first
}

// runs reports whether the clock has begun, so that its call was sent.
func (k *clock) runs() bool { return !k.started().IsZero() }

// hold stops the clock until release is called as often.
func (k *clock) hold() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holds++; k.holds == 1 {
		k.left -= time.Since(k.since)
	}
}

func (k *clock) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holds--; k.holds == 0 {
		k.since, k.left = time.Now(), max(k.left, 0)
		k.setLocked()
	}
}

// halt stops the clock for good.
func (k *clock) halt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.out = true
}

// alarm is the one timer of all the clocks of a session: a timer for each would
// cost more than the rest of a call's way. It rings when the first of them may
// have run out; most have been halted until then.
type alarm struct {
	ring func() // looks at the clocks, and sets the alarm for those that run on

	at    atomic.Int64 // when it rings, an instant; 0: not. Written under the lock
	mu    sync.Mutex   // guards what follows
	timer *time.Timer
}

// set has the alarm ring at the time given, if not before.
func (a *alarm) set(at time.Time) {
	if a.rangBy(at) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rangBy(at) {
		return
	}
	a.at.Store(int64(at.Sub(epoch)))
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(at), a.rings)
	} else {
		a.timer.Reset(time.Until(at))
	}
}

// rangBy reports whether the alarm is set for the time given or before.
func (a *alarm) rangBy(at time.Time) bool {
	set := a.at.Load()
	return set != 0 && set <= int64(at.Sub(epoch))
}

// rings forgets the time before the clocks are looked at: one that begins
// meanwhile sets it again.
func (a *alarm) rings() {
	a.mu.Lock()
	a.at.Store(0)
	a.mu.Unlock()
	a.ring()
}

// stop lets the alarm ring no more. No clock of it may run.
func (a *alarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
	}
}
