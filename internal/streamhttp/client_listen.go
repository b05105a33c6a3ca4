package streamhttp

import (
	"net/http"
	"time"
)

// maxListenRetry is how far the wait before the session's stream is opened
// again grows while it fails.
const maxListenRetry = 30 * time.Second

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
			c.hear(resp, &f)
		default:
			discard(resp)
			if !c.again(resp.StatusCode, first) {
				return
			}
			f.failures++
		}
		if sleep(c.ctx, listenWait(&f)) != nil {
			return
		}
	}
}

// again reports whether a refused GET is to be tried once more.
func (c *Client) again(status int, first bool) bool {
	if first {
		return status >= 500
	}
	return !c.final(status)
}

// listenWait is the wait before the stream is opened again: what the server
// said, else a second, longer while it fails.
func listenWait(f *follower) time.Duration {
	d := f.retry
	if d == 0 {
		d = time.Second
	}
	return max(d, min(d<<min(f.failures, 16), maxListenRetry))
}

// hear takes the messages of one stream of the session.
func (c *Client) hear(resp *http.Response, f *follower) {
	defer resp.Body.Close()
	c.ears.Store(true)
	defer c.ears.Store(false)
	if f.lastID == "" && c.cfg.Opened != nil {
		c.cfg.Opened()
	}
	f.failures = 0
	_, _ = f.read(NewEventReader(resp.Body, c.cfg.MaxMessage), heard(c.cfg.Receive))
}

// heard is the sink of the session's own stream, on which no request is ever
// over.
type heard func(raw []byte)

func (h heard) Take(raw []byte) bool { h(raw); return false }

func (h heard) Refused([]byte) bool { return false }

func (h heard) Paused(time.Duration) {}
