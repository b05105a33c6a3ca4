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
	after []*afterEnd
}

// afterEnd is a function to be called at the end.
type afterEnd struct {
	life *Life
	f    func()
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
	after := l.after
	if !l.ended && l.done != nil {
		close(l.done)
	}
	l.ended, l.after = true, nil
	l.mu.Unlock()
	for _, a := range after {
		a.f()
	}
}

// AfterFunc is what [context.AfterFunc] asks a context for. f is called by End, or now
// if that has been called, and must not block.
func (l *Life) AfterFunc(f func()) (stop func() bool) {
	a := &afterEnd{l, f}
	l.mu.Lock()
	ended := l.ended
	if !ended {
		l.after = append(l.after, a)
	}
	l.mu.Unlock()
	if ended {
		f()
	}
	return a.stop
}

// stop reports whether f is called no more for it.
func (a *afterEnd) stop() bool {
	a.life.mu.Lock()
	defer a.life.mu.Unlock()
	i := slices.Index(a.life.after, a)
	if i >= 0 {
		a.life.after = slices.Delete(a.life.after, i, i+1)
	}
	return i >= 0
}

// AfterFunc is [context.AfterFunc], without its channel and goroutine where ctx is a
// [Life]: f must not block.
func AfterFunc(ctx context.Context, f func()) (stop func() bool) {
	if l, ok := ctx.(*Life); ok {
		return l.AfterFunc(f)
	}
	return context.AfterFunc(ctx, f)
}
