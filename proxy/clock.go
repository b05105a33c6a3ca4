package proxy

import (
	"sync"
	"time"
)

// clock runs out once, and can be stopped for a while. The zero clock never
// runs out.
type clock struct {
	mu    sync.Mutex // guards what follows
	timer *time.Timer
	left  time.Duration
	since time.Time // when it last began to run
	first time.Time
	holds int // how many want it stopped
	out   bool
}

func (k *clock) begin(d time.Duration, expire func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.first = time.Now()
	k.left, k.since = d, k.first
	k.timer = time.AfterFunc(d, func() {
		k.mu.Lock()
		out := k.holds == 0
		k.out = k.out || out
		k.mu.Unlock()
		if out {
			expire()
		}
	})
	if k.holds > 0 {
		k.timer.Stop()
	}
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
	if k.holds++; k.holds == 1 && k.timer != nil && k.timer.Stop() {
		k.left -= time.Since(k.since)
	}
}

func (k *clock) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.holds--; k.holds == 0 && k.timer != nil && !k.out {
		k.since = time.Now()
		k.timer.Reset(max(k.left, 0))
	}
}

// halt stops the clock for good.
func (k *clock) halt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.out = true
	if k.timer != nil {
		k.timer.Stop()
	}
}
