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

// Sink takes what arrives on the stream of a POST.
type Sink interface {
	// Take takes a message or a batch. It reports whether the request is
	// over: what comes later is still taken, but nobody waits for it.
	Take(raw []byte) bool
	// Refused takes the JSON body of an HTTP error status. It reports whether
	// that is the answer.
	Refused(raw []byte) bool
	// Paused is told that the server has ended the request's stream before its
	// answer, having said after what time to come back for that. It is done, where
	// the server gave an event id.
	Paused(retry time.Duration)
}

// Post sends a request and gives sink what comes on its stream, until the sink
// says that the request is over; then the error is nil. It resumes a stream
// that ended early where the server gave event ids. The error is always a
// [*wire.CallError]. When ctx ends the POST's connection is closed.
//
// While notifications/initialized is on its way, Post waits for it.
func (c *Client) Post(ctx context.Context, body []byte, sink Sink) error {
	if err := c.awaitInitialized(ctx); err != nil {
		return unsent(err)
	}
	return c.exchange(ctx, &exchange{Client: c, sink: sink}, body, false)
}

// awaitInitialized waits while notifications/initialized is on its way: a request must not
// overtake it.
func (c *Client) awaitInitialized(ctx context.Context) error {
	posted := c.initializing.Load()
	if posted == nil {
		return nil
	}
	select {
	case <-*posted:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return errClosed
	}
}

// Initialize is Post for the initialize request: the answer's header may bring
// the session's id.
func (c *Client) Initialize(ctx context.Context, body []byte, sink Sink) error {
	return c.exchange(ctx, &exchange{Client: c, sink: sink}, body, true)
}

// Ask is [Client.Post] in the modern era (2026-07-28): the request is one by itself:
// there is no session, nothing to wait for, and no stream is resumed.
// fields repeat in the header what the body says: [MirrorFields] makes them.
// Besides the end of ctx, that of life closes the request's stream, by which the
// server is told that it is cancelled.
func (c *Client) Ask(ctx context.Context, life *wire.Life, body []byte, fields []http1.Field, sink Sink) error {
	return c.exchange(ctx, &exchange{Client: c, sink: sink, life: life, era: wire.Modern, fields: fields}, body, false)
}

// MirrorFields are the fields that repeat a request's method, and its name where it
// has one.
func MirrorFields(m *wire.Message) []http1.Field {
	fields := append(make([]http1.Field, 0, 2), http1.Field{Name: wire.HeaderMethod, Value: wire.EncodeHeader(m.Method)})
	if name, named := m.Named(); named {
		fields = append(fields, http1.Field{Name: wire.HeaderName, Value: wire.EncodeHeader(name)})
	}
	return fields
}

// exchange is one POST of a request and what becomes of it.
type exchange struct {
	*Client
	life   *wire.Life // its stream ends with it
	own    wire.Life  // where none was given
	sink   Sink
	era    wire.Era
	fields []http1.Field
	lasts  bool // its end is left to a stream that is read on
}

// exchange posts a request. Its context is not the caller's, since the stream
// may outlive the call by a little.
func (c *Client) exchange(ctx context.Context, x *exchange, body []byte, opens bool) error {
	c.mu.Lock()
	aborted := c.aborted
	if !aborted {
		c.posts[x] = struct{}{}
	}
	c.mu.Unlock()
	if aborted {
		return unsent(errClosed)
	}
	if x.life == nil {
		x.life = &x.own
	}
	stop := wire.AfterFunc(ctx, x.life.End)
	err := x.run(body, opens)
	stop()
	if !x.lasts {
		aborted = x.over()
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err.Err = ctx.Err()
	} else if aborted {
		err.Err = errClosed
	}
	return err
}

// over takes a POST out of those under way, and ends it. A life that was given is its
// owner's. It reports whether all were aborted.
func (x *exchange) over() (aborted bool) {
	x.mu.Lock()
	delete(x.posts, x)
	aborted = x.aborted
	x.mu.Unlock()
	x.own.End()
	return aborted
}

func (x *exchange) run(body []byte, opens bool) *wire.CallError {
	resp, err := x.send(x.life, sending{method: http.MethodPost, body: body, era: x.era, fields: x.fields})
	if err != nil {
		return err
	}
	if opens {
		if err := x.learn(resp.Header); err != nil {
			discard(resp)
			return lost(0, err)
		}
	}
	if resp.StatusCode != http.StatusOK {
		return x.refused(resp)
	}
	switch mediaType(resp) {
	case typeJSON:
		return x.single(resp)
	case typeSSE:
		return x.follow(resp)
	}
	discard(resp)
	return lost(resp.StatusCode, fmt.Errorf("unexpected content type %q", resp.Header.Get("Content-Type")))
}

// single takes an answer that is one JSON text.
func (x *exchange) single(resp *http.Response) *wire.CallError {
	raw, err := readAll(resp, x.cfg.MaxMessage)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return lost(0, errors.New("reading the answer: the upstream cut it off"))
	case err != nil:
		return lost(0, err)
	case !x.sink.Take(raw):
		return lost(resp.StatusCode, errors.New("the body does not answer this request"))
	}
	return nil
}

// refused takes an answer with another status than 200.
func (x *exchange) refused(resp *http.Response) *wire.CallError {
	status := resp.StatusCode
	var raw []byte
	if mediaType(resp) == typeJSON {
		raw, _ = readAll(resp, x.cfg.MaxMessage)
	} else {
		discard(resp)
	}
	gone := status == http.StatusNotFound && x.hasSession()
	if gone {
		// A body that names no request speaks of the session.
		if m, err := wire.Read(raw, wire.FromUpstream); err != nil || !m.ID.Present() {
			x.end(errForgotten)
			return lost(status, errors.New("the upstream knows the session no more"))
		}
	}
	if status >= 400 && status < 500 && len(raw) > 0 && x.sink.Refused(raw) {
		return nil
	}
	if gone {
		x.end(errForgotten)
	}
	return lost(status, errors.New(http.StatusText(status)))
}

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
