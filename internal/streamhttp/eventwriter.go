package streamhttp

import (
	"context"
	"net/http"
	"sync"
)

// eventSource is what is written on a connection as an event stream.
type eventSource interface {
	// take appends what is to be written next to out.
	take(out []byte) []byte
	// failed is told that the client has not got what was taken last.
	failed()
	// finished reports whether nothing more will come.
	finished() bool
	// leave is told that the client is gone.
	leave()
}

// eventWriter writes an event stream.
type eventWriter struct {
	w    http.ResponseWriter
	wake chan struct{} // there may be something to write
}

func newEventWriter(w http.ResponseWriter) eventWriter {
	return eventWriter{w: w, wake: make(chan struct{}, 1)}
}

func (e *eventWriter) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// chunks are buffers for what is written at once.
var chunks = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// maxChunk is about how much is written at once; a message is never split.
const maxChunk = 64 << 10

// write writes until the source is finished or the client is gone.
func (e *eventWriter) write(ctx context.Context, src eventSource) {
	rc := http.NewResponseController(e.w)
	h := e.w.Header()
	h["Content-Type"] = valueEvents
	h["Cache-Control"] = valueNoCache
	h["X-Accel-Buffering"] = valueNo
	for {
		more, err := e.pass(rc, src)
		if !more || err != nil {
			return
		}
		select {
		case <-e.wake:
		case <-ctx.Done():
			src.leave()
			return
		}
	}
}

// pass writes all there is.
func (e *eventWriter) pass(rc *http.ResponseController, src eventSource) (more bool, err error) {
	buf := chunks.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= 2*maxChunk {
			chunks.Put(buf)
		}
	}()
	for {
		*buf = src.take((*buf)[:0])
		if len(*buf) == 0 {
			return !src.finished(), nil
		}
		if _, err = e.w.Write(*buf); err == nil {
			err = rc.Flush()
		}
		if err != nil {
			src.failed()
			return false, err
		}
	}
}
