package wire

import (
	"context"
	"sync"
	"time"
)

// Life is a context that is ended by hand. It costs a fraction of what the
// standard library's do, as it has no parent and makes no channel that nobody
// asks for. Its zero value is ready. It is safe for concurrent use.
type Life struct {
	mu    sync.Mutex // guards what follows
	done  chan struct{}
	ended bool
	after Ender // to be ended with it; nil: nothing
}

// Ender is what can be ended. End must not block where a [Life] holds it.
type Ender interface{ End() }

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
	after := l.after
	if !l.ended && l.done != nil {
		close(l.done)
	}
	l.ended, l.after = true, nil
	l.mu.Unlock()
	if after != nil {
		after.End()
	}
}

// Hold has e ended at the end, or now if that has come. It reports false where
// something is held already.
func (l *Life) Hold(e Ender) bool {
	l.mu.Lock()
	taken, ended := l.after != nil, l.ended
	if !taken && !ended {
		l.after = e
	}
	l.mu.Unlock()
	if ended {
		e.End()
	}
	return !taken
}

// Drop takes back what Hold was given. It reports false if that was ended.
func (l *Life) Drop() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.after = nil
	return !l.ended
}
