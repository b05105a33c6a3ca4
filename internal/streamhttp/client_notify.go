package streamhttp

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// notifyTimeout bounds the POST of one notification or answer.
const notifyTimeout = 30 * time.Second

var (
	errClosed    = errors.New("the upstream session is closed")
	errQueueFull = errors.New("the upstream takes no notifications: too many wait to be posted")
)

const methodInitialized = "notifications/initialized"

// Notify queues a notification, or an answer to one of the server's requests.
// They are posted in order, one after the other. After notifications/initialized
// the session's own stream is opened.
func (c *Client) Notify(raw []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.gone {
		return errClosed
	}
	if c.queued+len(raw) > c.cfg.MaxQueue {
		return errQueueFull
	}
	if c.gate.Load() == nil && !c.greeted && isInitialized(raw) {
		gate := make(chan struct{})
		c.gate.Store(&gate)
	}
	c.queue, c.queued = append(c.queue, raw), c.queued+len(raw)
	if !c.posting {
		c.posting = true
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

// pass waits while notifications/initialized is on its way: a request must not
// overtake it.
func (c *Client) pass(ctx context.Context) error {
	gate := c.gate.Load()
	if gate == nil {
		return nil
	}
	select {
	case <-*gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return errClosed
	}
}

// postQueue posts what is queued, and ends when nothing is.
func (c *Client) postQueue() {
	for raw := c.dequeue(); raw != nil; raw = c.dequeue() {
		c.postOne(raw)
		c.open(raw)
	}
}

func (c *Client) dequeue() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 || c.ctx.Err() != nil {
		c.posting, c.queue, c.queued = false, nil, 0
		if c.idle != nil {
			close(c.idle)
			c.idle = nil
		}
		return nil
	}
	raw := c.queue[0]
	c.queue[0] = nil
	c.queue, c.queued = c.queue[1:], c.queued-len(raw)
	return raw
}

// SetEra says of which era the messages given to [Client.Notify] are from now on:
// of the legacy one without it.
func (c *Client) SetEra(era wire.Era) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.era = era
}

// notification is the POST of a message that [Client.Notify] was given.
func (c *Client) notification(raw []byte) sending {
	c.mu.Lock()
	s := sending{method: http.MethodPost, body: raw, era: c.era}
	c.mu.Unlock()
	if s.era == wire.Legacy {
		return s
	}
	if m, err := wire.Read(raw, wire.FromUpstream); err == nil {
		s.fields = MirrorFields(m)
	}
	return s
}

func (c *Client) postOne(raw []byte) {
	ctx, cancel := context.WithTimeout(c.ctx, notifyTimeout)
	defer cancel()
	resp, err := c.send(ctx, c.notification(raw))
	if err != nil {
		c.cfg.Log.Warn("posting a notification to the upstream", "error", err)
		return
	}
	discard(resp)
	if resp.StatusCode >= 300 {
		c.cfg.Log.Warn("the upstream refused a notification", "status", resp.StatusCode)
	}
	if resp.StatusCode == http.StatusNotFound && c.hasSession() {
		c.goAway()
	}
}

// open lets requests pass, and opens the session's own stream, once
// notifications/initialized was posted.
func (c *Client) open(raw []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gate := c.gate.Load()
	if gate == nil || c.closed || !isInitialized(raw) {
		return
	}
	c.greeted = true
	c.gate.Store(nil)
	close(*gate)
	c.wg.Go(c.listen)
}

// flush waits until what is queued was posted, for a bounded time.
func (c *Client) flush() {
	c.mu.Lock()
	if !c.posting {
		c.mu.Unlock()
		return
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	timer := time.NewTimer(closing)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	case <-c.ctx.Done():
	}
}
