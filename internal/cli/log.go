package cli

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
)

// newLogger makes the logger that the flags ask for. Logs go to standard error only:
// standard output may be the protocol.
func newLogger(r *config.Run, stderr io.Writer) hclog.Logger {
	return tidy{hclog.New(&hclog.LoggerOptions{
		Name:       "fsm-proxy",
		Level:      hclog.LevelFromString(r.LogLevel),
		Output:     stderr,
		JSONFormat: r.LogFormat == "json",
	})}
}

// tidy is a logger that says a duration as 1.2s in JSON too, where hclog has its
// nanoseconds, and leaves out what is empty.
type tidy struct{ hclog.Logger }

func (l tidy) Log(level hclog.Level, msg string, pairs ...any) {
	l.Logger.Log(level, msg, tidied(pairs)...)
}
func (l tidy) Trace(msg string, pairs ...any) { l.Logger.Trace(msg, tidied(pairs)...) }
func (l tidy) Debug(msg string, pairs ...any) { l.Logger.Debug(msg, tidied(pairs)...) }
func (l tidy) Info(msg string, pairs ...any)  { l.Logger.Info(msg, tidied(pairs)...) }
func (l tidy) Warn(msg string, pairs ...any)  { l.Logger.Warn(msg, tidied(pairs)...) }
func (l tidy) Error(msg string, pairs ...any) { l.Logger.Error(msg, tidied(pairs)...) }

func (l tidy) With(pairs ...any) hclog.Logger      { return tidy{l.Logger.With(tidied(pairs)...)} }
func (l tidy) Named(name string) hclog.Logger      { return tidy{l.Logger.Named(name)} }
func (l tidy) ResetNamed(name string) hclog.Logger { return tidy{l.Logger.ResetNamed(name)} }

// tidied is pairs of names and values as they are logged.
func tidied(pairs []any) []any {
	out := make([]any, 0, len(pairs))
	for pair := range slices.Chunk(pairs, 2) {
		value := pair[len(pair)-1]
		switch v := value.(type) {
		case time.Duration:
			value = v.String()
		case string:
			if v == "" {
				continue
			}
		}
		out = append(append(out, pair[:len(pair)-1]...), value)
	}
	return out
}

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
