package streamhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/net/http/httpguts"

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
	// maxLinger is how long a stream is read on after its answer.
	maxLinger = 5 * time.Second
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
			x.linger(resp, events)
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
			return lost(0, streamEnd(err))
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
		if id := events.LastID(); id != "" && httpguts.ValidHeaderFieldValue(id) {
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

func streamEnd(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the upstream ended the stream before it answered")
	}
	return fmt.Errorf("reading the stream: %w", err)
}

// resume asks for the rest of a request's stream.
func (c *Client) resume(ctx context.Context, f *follower) (*http.Response, error) {
	for {
		if err := sleep(ctx, f.wait()); err != nil {
			return nil, err
		}
		resp, err := c.reopen(ctx, f.lastID)
		if err == nil {
			f.failures = 0
			return resp, nil
		}
		if f.failures++; f.failures >= maxFailures || resp != nil && c.final(resp.StatusCode) {
			return nil, err
		}
	}
}

// reopen asks for the rest of a stream once. Where the server refused, its
// answer comes with the error.
func (c *Client) reopen(ctx context.Context, lastID string) (*http.Response, error) {
	resp, err := c.send(ctx, sending{method: http.MethodGet, lastID: lastID})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK && mediaType(resp) == typeSSE {
		return resp, nil
	}
	discard(resp)
	return resp, fmt.Errorf("resuming the stream: HTTP %d", resp.StatusCode)
}

// final reports whether asking again is in vain: the server understood, and
// will not.
func (c *Client) final(status int) bool {
	if status == http.StatusNotFound && c.hasSession() {
		c.goAway()
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

// linger reads a stream on after its answer, on a goroutine of its own: the
// caller is not kept, the end gives the connection back, and a message that
// comes late is taken.
func (x *exchange) linger(resp *http.Response, events *EventReader) {
	if b, ok := resp.Body.(*leanBody); ok && b.atEnd() {
		x.readOn(events)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	x.kept = true
	x.wg.Go(func() {
		defer x.over()
		defer resp.Body.Close()
		timer := time.AfterFunc(maxLinger, x.life.End)
		defer timer.Stop()
		x.readOn(events)
	})
}

// readOn takes what is left of a stream.
func (x *exchange) readOn(events *EventReader) {
	var f follower
	for {
		if _, err := f.read(events, x.sink); err != nil {
			return
		}
	}
}
