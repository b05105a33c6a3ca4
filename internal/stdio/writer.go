// Package stdio frames messages as lines, as MCP does over standard input and
// output: a [Reader] and a [Writer] for either end, and [Serve], the whole
// server end.
package stdio

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// ErrQueueFull is a reader at the other end that does not take what is sent.
var ErrQueueFull = errors.New("writing: the queue is full, the other end does not read")

// ErrClosed is a Writer that was closed.
var ErrClosed = errors.New("writing: closed")

const (
	// DefaultQueue is the bound of a Writer's queue where none is given.
	DefaultQueue = 4 << 20
	// flushTime is how long [Writer.Close] waits for the other end.
	flushTime = 5 * time.Second
	// keptBuffer is the largest buffer that is used again.
	keptBuffer = 64 << 10
)

// Writer writes messages, one a line, from a queue: callers never wait for the
// other end. What is queued goes out in one write: by the caller itself, where
// the other end has room for it at once and nobody else is writing, else by a
// goroutine. It is safe for concurrent use.
type Writer struct {
	w      io.Writer
	direct *direct // nil: a write may wait, so that no caller can make it
	cork   *Cork
	limit  int
	wake   chan struct{} // the goroutine has something to do
	done   chan struct{}

	mu     sync.Mutex
	state  state  // guarded by mu
	queue  []byte // guarded by mu
	spare  []byte // guarded by mu: the buffer written last
	busy   int    // guarded by mu: bytes of the write under way
	closed bool   // guarded by mu
	err    error  // guarded by mu: why it ended

	rest []byte // what a caller could not write; who writes has it
}

// state says who writes: nobody else may then.
type state uint8

const (
	idle       state = iota // nothing is queued
	corked                  // what is queued waits for the Cork
	calling                 // a caller of Write, or the one who pulled the Cork, writes
	background              // the Writer's goroutine writes, told by wake
)

// NewWriter returns a writer, whose goroutine runs until [Writer.Close] or an
// error. limit is how many bytes may be queued (0: [DefaultQueue]); with more
// than that waiting already the next message closes the writer, so that a
// single message may be larger.
func NewWriter(w io.Writer, limit int) *Writer {
	if limit <= 0 {
		limit = DefaultQueue
	}
	out := &Writer{w: w, direct: newDirect(w), limit: limit, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go out.run()
	return out
}

// Join has the messages wait while c is corked. It is called before the first
// Write. c may be nil.
func (w *Writer) Join(c *Cork) { w.cork = c }

// Write takes one message and reports whether it did. msg is not kept.
func (w *Writer) Write(msg []byte) bool { return w.put(msg, w.limit, true) }

// Offer is Write for what can be done without: where half of the queue is taken
// it takes nothing, and the writer goes on.
func (w *Writer) Offer(msg []byte) bool { return w.put(msg, w.limit/2, false) }

func (w *Writer) put(msg []byte, limit int, must bool) bool {
	msg = wire.OneLine(msg)
	w.mu.Lock()
	if full := len(w.queue)+w.busy > limit; full || w.closed {
		if full && must {
			w.endLocked(ErrQueueFull)
		}
		w.mu.Unlock()
		return false
	}
	w.queue = append(append(w.queue, msg...), '\n')
	mine := false
	switch {
	case w.state != idle:
	case w.cork.delays(w):
		w.state = corked
	default:
		mine = w.beginLocked()
	}
	w.mu.Unlock()
	if mine {
		w.flush()
	}
	return true
}

// beginLocked decides who writes what is queued, and reports whether it is the
// caller.
func (w *Writer) beginLocked() bool {
	if w.direct == nil {
		w.passLocked()
		return false
	}
	w.state = calling
	return true
}

// uncork writes what has gathered.
func (w *Writer) uncork() {
	w.mu.Lock()
	mine := w.state == corked && w.beginLocked()
	w.mu.Unlock()
	if mine {
		w.flush()
	}
}

// rounds is how often a caller writes what others have queued meanwhile.
const rounds = 3

// flush writes as much as there is room for, and leaves the rest to the
// goroutine. It is for the caller who writes.
func (w *Writer) flush() {
	for range rounds {
		batch := w.takeMine()
		if len(batch) == 0 {
			return
		}
		n, err := w.direct.try(batch)
		if err != nil {
			w.fail(err)
			break
		}
		if n < len(batch) {
			w.rest = batch[n:]
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passLocked()
}

// takeMine takes what is queued, or ends the caller's writing.
func (w *Writer) takeMine() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		w.passLocked()
		return nil
	case len(w.queue) == 0:
		w.busy, w.state = 0, idle
		return nil
	}
	return w.takeLocked()
}

// passLocked leaves the writing to the goroutine.
func (w *Writer) passLocked() {
	w.state = background
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close lets what is queued go out, waits for that (at most 5 s), and ends the
// writer. The underlying writer stays open.
func (w *Writer) Close() {
	w.mu.Lock()
	w.endLocked(ErrClosed)
	w.mu.Unlock()
	timer := time.NewTimer(flushTime)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
	}
}

// Done is closed when nothing will be written any more.
func (w *Writer) Done() <-chan struct{} { return w.done }

// Err tells why the writer takes no more messages, nil as long as it does.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// open reports whether messages are still taken.
func (w *Writer) open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed
}

// endLocked has no more taken. The goroutine writes what is left and ends; a
// caller who writes hands it on.
func (w *Writer) endLocked(err error) {
	if w.closed {
		return
	}
	w.closed, w.err = true, err
	if err != ErrClosed {
		w.queue = nil
	}
	if w.state != calling {
		w.passLocked()
	}
}

func (w *Writer) run() {
	defer close(w.done)
	for range w.wake {
		for {
			batch, ended := w.take()
			if ended {
				return
			}
			if len(batch) == 0 {
				break
			}
			if _, err := w.w.Write(batch); err != nil {
				w.fail(err)
				return
			}
		}
	}
}

// take takes what is to be written next, or ends the goroutine's writing.
func (w *Writer) take() (batch []byte, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.state != background:
		return nil, false
	case len(w.rest) > 0:
		batch, w.rest = w.rest, nil
		return batch, false
	case len(w.queue) > 0:
		return w.takeLocked(), false
	}
	w.busy = 0
	if !w.closed {
		w.state = idle
	}
	return nil, w.closed
}

// takeLocked swaps the queue for the buffer that was written last.
func (w *Writer) takeLocked() []byte {
	batch := w.queue
	w.queue, w.spare = w.spare[:0], batch
	if cap(batch) > keptBuffer {
		w.spare = nil
	}
	w.busy = len(batch)
	return batch
}

func (w *Writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked(err)
	w.queue, w.spare, w.rest = nil, nil, nil
}

// Cork gathers what several Writers are given while a Reader still has lines at
// hand, so that many messages that came in one read go out in one write. Readers
// and Writers join it ([Reader.Join], [Writer.Join]) before they are used. Its
// zero value is ready; a nil Cork gathers nothing. It is safe for concurrent
// use.
type Cork struct {
	mu      sync.Mutex // guards what follows
	readers int        // that have lines at hand
	waiting []*Writer  // for one of them to have none
}

// cork makes the Writers wait until uncork is called.
func (c *Cork) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers++
}

// uncork has everything written that has gathered, whoever gave it.
func (c *Cork) uncork() {
	c.mu.Lock()
	c.readers--
	var few [2]*Writer
	waiting := append(few[:0], c.waiting...)
	clear(c.waiting)
	c.waiting = c.waiting[:0]
	c.mu.Unlock()
	for _, w := range waiting {
		w.uncork()
	}
}

// delays reports whether w has to wait: then it will be uncorked.
func (c *Cork) delays(w *Writer) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readers > 0 {
		c.waiting = append(c.waiting, w)
	}
	return c.readers > 0
}
