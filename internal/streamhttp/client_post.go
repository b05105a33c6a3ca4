package streamhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
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
	if err := c.pass(ctx); err != nil {
		return unsent(err)
	}
	return c.exchange(ctx, &exchange{Client: c, sink: sink}, body, false)
}

// Initialize is Post for the initialize request: the answer's header may bring
// the session's id.
func (c *Client) Initialize(ctx context.Context, body []byte, sink Sink) error {
	return c.exchange(ctx, &exchange{Client: c, sink: sink}, body, true)
}

// exchange is one POST of a request and what becomes of it.
type exchange struct {
	*Client
	life   *wire.Life // its stream ends with it
	own    wire.Life  // where none was given
	sink   Sink
	era    wire.Era
	fields []Field
	kept   bool // its end is left to a lingering stream
}

// exchange posts a request. Its context is not the caller's, since the stream
// may outlive the call by a little.
func (c *Client) exchange(ctx context.Context, x *exchange, body []byte, opens bool) error {
	if !c.enter(x) {
		return unsent(errClosed)
	}
	if x.life == nil {
		x.life = &x.own
	}
	ending := holdBy(ctx, x.life)
	err := x.run(body, opens)
	ending.drop()
	if !x.kept {
		x.over()
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err.Err = ctx.Err()
	} else if c.isAborted() {
		err.Err = errClosed
	}
	return err
}

// enter enters a POST among those that Close ends.
func (c *Client) enter(x *exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.aborted {
		c.posts[x] = struct{}{}
	}
	return !c.aborted
}

// over takes a POST out of them, and ends it. A life that was given is its
// owner's.
func (x *exchange) over() {
	x.mu.Lock()
	delete(x.posts, x)
	x.mu.Unlock()
	x.own.End()
}

// abort ends all POSTs under way, and lets no more begin.
func (c *Client) abort() {
	c.mu.Lock()
	posts := c.posts
	c.posts, c.aborted = nil, true
	c.mu.Unlock()
	for x := range posts {
		x.life.End()
	}
}

func (c *Client) isAborted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.aborted
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
	return x.answer(resp)
}

func (x *exchange) answer(resp *http.Response) *wire.CallError {
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

func mediaType(resp *http.Response) string {
	value := resp.Header.Get("Content-Type")
	if value == typeJSON || value == typeSSE {
		return value
	}
	t, _, _ := mime.ParseMediaType(value)
	return t
}

// single takes an answer that is one JSON text.
func (x *exchange) single(resp *http.Response) *wire.CallError {
	raw, err := readAll(resp, x.cfg.MaxMessage)
	if err != nil {
		return lost(0, truncated(err))
	}
	if !x.sink.Take(raw) {
		return lost(resp.StatusCode, errors.New("the body does not answer this request"))
	}
	return nil
}

func truncated(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("reading the answer: the upstream cut it off")
	}
	return err
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
	if gone && forgotten(raw) {
		x.goAway()
		return lost(status, errors.New("the upstream knows the session no more"))
	}
	if status >= 400 && status < 500 && len(raw) > 0 && x.sink.Refused(raw) {
		return nil
	}
	if gone {
		x.goAway()
	}
	return lost(status, errors.New(http.StatusText(status)))
}

// forgotten reports whether the body of a 404 speaks of the session and not of
// the request: it names no request.
func forgotten(raw []byte) bool {
	m, err := wire.Read(raw, wire.FromUpstream)
	return err != nil || !m.ID.Present()
}
