package wire

import (
	"context"
	"slices"
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
