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
// other end. What is queued goes out in one write. It is safe for concurrent
// use.
type Writer struct {
	w     io.Writer
	limit int
	wake  chan struct{} // something is queued, or the queue is closed
	done  chan struct{}

	mu     sync.Mutex
	queue  []byte // guarded by mu
	spare  []byte // guarded by mu: the buffer written last
	busy   int    // guarded by mu: bytes of the write under way
	closed bool   // guarded by mu
	err    error  // guarded by mu: why it ended
}

// NewWriter returns a writer, whose goroutine runs until [Writer.Close] or an
// error. limit is how many bytes may be queued (0: [DefaultQueue]); with more
// than that waiting already the next message closes the writer, so that a
// single message may be larger.
func NewWriter(w io.Writer, limit int) *Writer {
	if limit <= 0 {
		limit = DefaultQueue
	}
	out := &Writer{w: w, limit: limit, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go out.run()
	return out
}

// Write queues one message and reports whether it was taken. msg is not kept.
func (w *Writer) Write(msg []byte) bool {
	msg = wire.OneLine(msg)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if len(w.queue)+w.busy > w.limit {
		w.endLocked(ErrQueueFull)
		return false
	}
	w.queue = append(append(w.queue, msg...), '\n')
	w.signal()
	return true
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

func (w *Writer) endLocked(err error) {
	if w.closed {
		return
	}
	w.closed, w.err = true, err
	if err != ErrClosed {
		w.queue = nil
	}
	w.signal()
}

func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Writer) run() {
	defer close(w.done)
	for range w.wake {
		for {
			batch, ended := w.take()
			if len(batch) == 0 {
				if ended {
					return
				}
				break
			}
			if _, err := w.w.Write(batch); err != nil {
				w.fail(err)
				return
			}
		}
	}
}

// take swaps the queue for the buffer that was written last.
func (w *Writer) take() (batch []byte, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch = w.queue
	w.queue, w.spare = w.spare[:0], batch
	if cap(batch) > keptBuffer {
		w.spare = nil
	}
	w.busy = len(batch)
	return batch, w.closed
}

func (w *Writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked(err)
	w.queue, w.spare = nil, nil
}
