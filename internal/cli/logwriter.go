package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// logWriter passes log lines on without ever waiting for who reads them: a
// client that leaves our standard error unread must not hold up its own calls.
// What does not fit into its queue is dropped and counted. One goroutine writes,
// and ends with Close.
type logWriter struct {
	out  io.Writer
	json bool // the form of what it says itself
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex // guards what follows
	queue   []byte
	dropped int // lines
	closed  bool
}

// maxLogQueue is how many bytes of log may wait, logFlush how long Close waits
// for them to be read.
const (
	maxLogQueue = 1 << 20
	logFlush    = time.Second
)

func newLogWriter(out io.Writer, json bool) *logWriter {
	w := &logWriter{out: out, json: json, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// Write queues a line.
func (w *logWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.queue)+len(line) > maxLogQueue {
		w.dropped++
		return len(line), nil
	}
	w.queue = append(w.queue, line...)
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return len(line), nil
}

func (w *logWriter) run() {
	defer close(w.done)
	for more := true; more; {
		<-w.wake
		var lines []byte
		lines, more = w.take()
		if len(lines) > 0 {
			_, _ = w.out.Write(lines)
		}
	}
}

// take empties the queue. It reports false when nothing more will come.
func (w *logWriter) take() (lines []byte, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines, w.queue = w.queue, nil
	if w.dropped > 0 {
		form := "fsm-proxy: log lines were dropped, nobody read them: %d\n"
		if w.json {
			form = `{"@level":"warn","@message":"log lines were dropped, nobody read them","dropped":%d}` + "\n"
		}
		lines = fmt.Appendf(lines, form, w.dropped)
		w.dropped = 0
	}
	return lines, !w.closed
}

// Close writes what is queued, for a bounded time.
func (w *logWriter) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	select {
	case <-w.done:
	case <-time.After(logFlush):
	}
}
