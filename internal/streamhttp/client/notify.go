package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

const (
	// postTimeout bounds the POST of one message from the queue.
	postTimeout = 30 * time.Second
	// maxListenRetry is how far the wait before the session's stream is opened
	// again grows while it fails.
	maxListenRetry = 30 * time.Second

	methodInitialized = "notifications/initialized"
)

var (
	errClosed    = errors.New("the upstream session is closed")
	errQueueFull = errors.New("the upstream takes no messages: too many wait to be posted")
)

// queue holds what is to be posted in order, one after the other.
type queue struct {
	messages []queued
	bytes    int
	running  bool          // a goroutine posts what is there
	empty    chan struct{} // closes when the queue is empty; nil when nobody waits
}

// queued is a message that waits to be posted. failed is told that it could not be; nil:
// the log is.
type queued struct {
	raw    []byte
	failed func(*wire.CallError)
}

// Notify queues a notification, or an answer to one of the server's requests.
// They are posted in order, one after the other. After notifications/initialized
// the session's own stream is opened.
func (c *Client) Notify(raw []byte) error { return c.Queue(raw, nil) }

// Queue is [Client.Notify] of a message, a request over HTTP+SSE, whose failure somebody
// waits for.
func (c *Client) Queue(raw []byte, failed func(*wire.CallError)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := &c.queue
	if c.closed || c.gone {
		return errClosed
	}
	if q.bytes > 0 && q.bytes+len(raw) > c.cfg.MaxQueue { // one message goes, whatever its size
		return errQueueFull
	}
	if c.initializing.Load() == nil && !c.opened && c.endpoint.Load() == nil && isInitialized(raw) {
		posted := make(chan struct{})
		c.initializing.Store(&posted)
	}
	q.messages, q.bytes = append(q.messages, queued{raw, failed}), q.bytes+len(raw)
	if !q.running {
		q.running = true
		c.wg.Go(c.postQueue)
	}
	return nil
}

func isInitialized(raw []byte) bool {
	if !bytes.Contains(raw, []byte(methodInitialized)) {
		return false
	}
	m, err := wire.Read(raw, wire.FromUpstream)
	return err == nil && m.Kind == wire.Notification && m.Method == methodInitialized
}

// postQueue posts what is queued, and ends when nothing is.
func (c *Client) postQueue() {
	for m, ok := c.dequeue(); ok; m, ok = c.dequeue() {
		c.postQueued(m)
		c.openListening(m.raw)
	}
}

func (c *Client) dequeue() (m queued, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := &c.queue
	if len(q.messages) == 0 || c.ctx.Err() != nil {
		if q.empty != nil {
			close(q.empty)
		}
		*q = queue{}
		return m, false
	}
	m = q.messages[0]
	q.messages[0] = queued{}
	q.messages, q.bytes = q.messages[1:], q.bytes-len(m.raw)
	return m, true
}

func (c *Client) postQueued(m queued) {
	ctx, cancel := context.WithTimeout(c.ctx, postTimeout)
	defer cancel()
	c.mu.Lock()
	s := sending{method: http.MethodPost, body: m.raw, era: c.era}
	c.mu.Unlock()
	if s.era == wire.Modern {
		if read, err := wire.Read(m.raw, wire.FromUpstream); err == nil {
			s.fields = MirrorFields(read)
		}
	}
	resp, err := c.send(ctx, s)
	if err == nil {
		discard(resp)
		if resp.StatusCode >= 300 {
			err = lost(resp.StatusCode, errors.New(http.StatusText(resp.StatusCode)))
		}
		if resp.StatusCode == http.StatusNotFound && c.hasSession() {
			defer c.end(errForgotten)
		}
	}
	switch {
	case err == nil:
	case m.failed != nil:
		m.failed(err)
	default:
		c.cfg.Log.Warn("posting a notification to the upstream", "error", err)
	}
}

// flush waits until what is queued was posted, for a bounded time.
func (c *Client) flush() {
	c.mu.Lock()
	if !c.queue.running {
		c.mu.Unlock()
		return
	}
	if c.queue.empty == nil {
		c.queue.empty = make(chan struct{})
	}
	empty := c.queue.empty
	c.mu.Unlock()
	timer := time.NewTimer(closing)
	defer timer.Stop()
	select {
	case <-empty:
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

// openListening lets requests go, and opens the session's own stream, once
// notifications/initialized was posted.
func (c *Client) openListening(raw []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	posted := c.initializing.Load()
	if posted == nil || c.closed || !isInitialized(raw) {
		return
	}
	c.opened = true
	c.initializing.Store(nil)
	close(*posted)
	c.wg.Go(c.listen)
}

// listen keeps the session's own stream (GET) open until the client closes. A
// server that has none says so by 405; any other refusal of the first attempt
// is taken the same way, since servers without the route answer 404.
func (c *Client) listen() {
	f := follower{}
	for first := true; ; first = false {
		resp, err := c.send(c.ctx, sending{method: http.MethodGet, lastID: f.lastID})
		switch {
		case err != nil:
			f.failures++
		case resp.StatusCode == http.StatusOK && mediaType(resp) == typeSSE:
			c.readOwn(resp, &f)
		default:
			discard(resp)
			if first && resp.StatusCode < 500 || !first && c.final(resp.StatusCode) {
				return
			}
			f.failures++
		}
		d := f.retry // what the server said, else a second, longer while it fails
		if d == 0 {
			d = time.Second
		}
		if sleep(c.ctx, max(d, min(d<<min(f.failures, 16), maxListenRetry))) != nil {
			return
		}
	}
}

// readOwn takes the messages of one stream of the session.
func (c *Client) readOwn(resp *http.Response, f *follower) {
	defer resp.Body.Close()
	c.listening.Store(true)
	defer c.listening.Store(false)
	if f.lastID == "" && c.cfg.Opened != nil {
		c.cfg.Opened()
	}
	f.failures = 0
	_, _ = f.read(NewEventReader(resp.Body, c.cfg.MaxMessage), receiver(c.cfg.Receive))
}

// receiver is the sink of the session's own stream, on which no request is ever
// over.
type receiver func(raw []byte)

func (r receiver) Take(raw []byte) bool { r(raw); return false }
func (receiver) Refused([]byte) bool    { return false }
func (receiver) Paused(time.Duration)   {}

// OpenSSE opens the one stream of HTTP+SSE (2024-11-05), by which comes all that the server
// says, and learns from it where to post. Messages there are not tied to the request that they
// belong to, and a stream that breaks cannot be resumed: then Config.Gone is told.
// When ctx ends before, the client is of no use any more.
func (c *Client) OpenSSE(ctx context.Context) error {
	stop := context.AfterFunc(ctx, c.cancel)
	resp, failed := c.send(c.ctx, sending{method: http.MethodGet, moved: true})
	switch {
	case failed != nil && ctx.Err() != nil:
		return ctx.Err()
	case failed != nil:
		return failed
	case resp.StatusCode != http.StatusOK:
		discard(resp)
		return lost(resp.StatusCode, errors.New(http.StatusText(resp.StatusCode)))
	}
	events := NewEventReader(resp.Body, c.cfg.MaxMessage)
	err := c.readEndpoint(events)
	if !stop() {
		err = ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.closed {
		err = errClosed
	}
	if err != nil {
		_ = resp.Body.Close()
		return err
	}
	c.wg.Go(func() {
		defer resp.Body.Close()
		f := follower{}
		_, err := f.read(events, receiver(c.cfg.Receive))
		c.cancel()
		c.end(fmt.Errorf("the upstream's event stream ended: %w", err))
	})
	return nil
}

// readEndpoint reads where to post. The error says nothing of it, as it holds the session's id.
func (c *Client) readEndpoint(events *EventReader) error {
	for {
		e, err := events.Next()
		switch {
		case err != nil:
			return fmt.Errorf("the upstream's event stream ended before it said where to post: %w", err)
		case isMessage(e):
			c.cfg.Receive(e.Data)
		case e.Name == "endpoint":
			to, err := c.cfg.URL.Parse(string(e.Data))
			if err != nil || to.Scheme != c.cfg.URL.Scheme || to.Host != c.cfg.URL.Host {
				return errors.New("the upstream wants messages posted to another host, or to what is no URL")
			}
			c.endpoint.Store(to)
			c.prepared[wire.Legacy].Store(nil)
			return nil
		}
	}
}
