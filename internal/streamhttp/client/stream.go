package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/http1"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

const (
	// defaultRetry is how long a client waits before it resumes a stream whose
	// server has not said.
	defaultRetry = 500 * time.Millisecond
	// maxRetry is how far the wait grows while a stream brings nothing.
	maxRetry = 30 * time.Second
	// maxPoll is how far it grows where the server says when to come back.
	maxPoll = time.Second
	// maxEmpty is how many times in a row a stream is resumed in vain.
	maxEmpty = 100
	// maxFailures is how many attempts in a row to resume may fail.
	maxFailures = 5
	// maxReadOn is how long a stream is read on after its answer.
	maxReadOn = 5 * time.Second
)

// follower reads the streams of one request, one after the other.
type follower struct {
	lastID   string
	retry    time.Duration // as the server said
	paused   bool          // it has ended the last stream, having said so on that
	empty    int           // streams in a row that brought no message
	failures int           // attempts in a row that failed
}

// wait is how long to wait before the next attempt: never less than the server has
// said, and hardly more where it polls, however often.
func (f *follower) wait() time.Duration {
	d, most := f.retry, maxRetry
	if d == 0 {
		d = defaultRetry
	}
	if f.paused && f.failures == 0 {
		most = maxPoll
	}
	if n := max(f.empty-1, f.failures); n > 0 {
		d = max(d, min(d<<min(n, 16), most))
	}
	return d
}

// follow takes the messages of an event stream until the request is over, and
// resumes the stream where it ended before that and can be resumed.
func (x *exchange) follow(resp *http.Response) *wire.CallError {
	if x.cfg.Streams != nil {
		x.cfg.Streams()
	}
	var f follower
	for {
		events := NewEventReader(resp.Body, x.cfg.MaxMessage)
		over, err := f.read(events, x.sink)
		if over {
			x.readOn(resp, events)
			return nil
		}
		_ = resp.Body.Close()
		if x.life.Err() != nil {
			return lost(0, x.life.Err())
		}
		if f.paused && x.era == wire.Legacy {
			x.sink.Paused(f.retry)
		}
		if errors.Is(err, ErrEventTooLong) || x.era == wire.Modern || f.lastID == "" || f.empty > maxEmpty && !f.paused {
			if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
				return lost(0, errors.New("the upstream ended the stream before it answered"))
			}
			return lost(0, fmt.Errorf("reading the stream: %w", err))
		}
		if resp, err = x.resume(x.life, &f); err != nil {
			return lost(0, err)
		}
	}
}

// read gives sink the messages of one stream.
func (f *follower) read(events *EventReader, sink Sink) (over bool, err error) {
	f.empty++
	for {
		e, err := events.Next()
		if id := events.LastID(); id != "" && http1.CheckField("Last-Event-Id", id) == nil {
			f.lastID = id
		}
		if events.Retry() > 0 {
			f.retry = events.Retry()
		}
		if err != nil {
			f.paused = err == io.EOF && events.Retry() > 0
			return false, err
		}
		if !isMessage(e) {
			continue
		}
		f.empty = 0
		if sink.Take(e.Data) {
			return true, nil
		}
	}
}

// isMessage tells messages from events that only set an id, and from those of
// another name.
func isMessage(e Event) bool {
	return len(e.Data) > 0 && (e.Name == "" || e.Name == "message")
}

// resume asks for the rest of a request's stream.
func (c *Client) resume(ctx context.Context, f *follower) (*http.Response, error) {
	for {
		if err := sleep(ctx, f.wait()); err != nil {
			return nil, err
		}
		resp, failed := c.send(ctx, sending{method: http.MethodGet, lastID: f.lastID})
		if failed == nil {
			if resp.StatusCode == http.StatusOK && mediaType(resp) == typeSSE {
				f.failures = 0
				return resp, nil
			}
			discard(resp)
			failed = &wire.CallError{Err: fmt.Errorf("resuming the stream: HTTP %d", resp.StatusCode)}
		}
		if f.failures++; f.failures >= maxFailures || resp != nil && c.final(resp.StatusCode) {
			return nil, failed.Err
		}
	}
}

// final reports whether asking again is in vain: the server understood, and
// will not.
func (c *Client) final(status int) bool {
	if status == http.StatusNotFound && c.hasSession() {
		c.end(errForgotten)
	}
	return status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
}

// sleep waits for d, or ctx's end, which is the error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readOn reads a stream on after its answer, on a goroutine of its own, unless the end is
// here already: the caller does not wait, the end gives the connection back, and a message
// that comes late is taken.
func (x *exchange) readOn(resp *http.Response, events *EventReader) {
	read := func() {
		var f follower
		for {
			if _, err := f.read(events, x.sink); err != nil {
				return
			}
		}
	}
	if b, ok := resp.Body.(interface{ AtEnd() bool }); ok && b.AtEnd() {
		read()
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	x.lasts = true
	x.wg.Go(func() {
		defer x.over()
		defer resp.Body.Close()
		timer := time.AfterFunc(maxReadOn, x.life.End)
		defer timer.Stop()
		read()
	})
}
