package telemetry

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// DenialLog logs denied requests: of one address, for one reason, the first at once, and
// what follows as one line each 10 s. It is safe for concurrent use.
type DenialLog struct {
	log hclog.Logger

	mu      sync.Mutex // guards what follows
	denials denials[[]any]
	timer   *time.Timer // for what is due next; nil: none was needed yet
	closed  bool
}

// NewDenialLog returns a log of denials.
func NewDenialLog(log hclog.Logger) *DenialLog {
	return &DenialLog{log: log, denials: denials[[]any]{first: wordsOfDenied}}
}

// Denied counts a request, and logs what is due.
func (d *DenialLog) Denied(one Denial) {
	d.mu.Lock()
	due := d.denials.add(one, time.Now())
	d.mu.Unlock()
	if due {
		d.flush()
	}
}

// flush logs what is due, and sets the timer for the rest.
func (d *DenialLog) flush() {
	now := time.Now()
	d.mu.Lock()
	told := d.denials.take(now, d.closed)
	if len(d.denials.counts) > 0 && !d.closed {
		if wait := d.denials.next.Sub(now); d.timer == nil {
			d.timer = time.AfterFunc(wait, d.flush)
		} else {
			d.timer.Reset(wait)
		}
	}
	d.mu.Unlock()
	for _, c := range told {
		words := c.first
		if c.n > 1 {
			words = append(words, "count", c.n, "since", c.since.UTC().Format(time.RFC3339))
		}
		d.log.Info("an HTTP request was refused", words...)
	}
}

// Close logs what is counted. Denied must not be called any more.
func (d *DenialLog) Close() {
	d.mu.Lock()
	d.closed = true
	if d.timer != nil {
		d.timer.Stop()
	}
	d.mu.Unlock()
	d.flush()
}

// wordsOfDenied is what the log tells of the first request. No header that may hold a
// secret is among it.
func wordsOfDenied(d *Denial, one bool) []any {
	words := []any{"status", d.Status, "reason", d.Reason, "why", d.Why}
	if one {
		words = append(append(words, "remote", d.Request.RemoteAddr, "method", clip(d.Request.Method)), d.Detail...)
	}
	return words
}
