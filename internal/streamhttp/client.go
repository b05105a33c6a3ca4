package streamhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// ClientConfig says how a [Client] reaches its server.
type ClientConfig struct {
	// URL is the server's MCP endpoint. Required.
	URL *url.URL
	// Header goes with every request.
	Header http.Header
	// Authorize returns the value of the Authorization header for the next
	// request, empty for none. nil: none.
	Authorize func(context.Context) (string, error)
	// Rejected is told of each answer 401. nil: nobody is.
	Rejected func(*http.Response)
	// Transport carries the requests: see [NewTransport]. Clients of the same
	// server share one. Required.
	Transport http.RoundTripper
	// MaxMessage bounds a message from the server, in bytes. Required.
	MaxMessage int
	// MaxQueue bounds what waits to be posted by [Client.Notify], in bytes.
	// 0: 16 MiB.
	MaxQueue int
	// Log is told what no caller can be told. Required.
	Log hclog.Logger
	// Receive takes the messages of the session's own stream (GET), in order.
	// Required.
	Receive func(raw []byte)
	// Opened is called each time the session's own stream was opened anew and
	// not resumed: what the server said before is lost. nil: nobody is told.
	Opened func()
	// Streams is called when the server answers a request with an event stream, which
	// it may end before the answer. nil: nobody is told.
	Streams func()
	// Gone is called once, when the server has said that it knows the session
	// no more. It must not call the client's Close. Required.
	Gone func(error)
}

// Client is the client's side of Streamable HTTP. In the legacy era (protocol
// 2025-03-26 to 2025-11-25) it is one session with a server, which begins with
// [Client.Initialize]; in the modern one (2026-07-28) there are none, and each
// [Client.Ask] stands alone. It is safe for concurrent use.
type Client struct {
	cfg    ClientConfig
	ctx    context.Context // ends when Close has posted what was queued
	cancel context.CancelFunc
	wg     sync.WaitGroup // listener, notifier, lingering streams
	ears   atomic.Bool    // the session's own stream is open
	// Read by each request without the lock, under which they are written:
	prepared [2]atomic.Pointer[prepared]   // by era; nil: to be made
	gate     atomic.Pointer[chan struct{}] // requests wait until it closes; nil: for nothing

	_       apart
	mu      sync.Mutex             // guards what follows
	posts   map[*exchange]struct{} // requests under way
	aborted bool                   // there are to be no more
	session string
	version string
	era     wire.Era // of notifications
	gone    bool
	closed  bool
	greeted bool // notifications/initialized was posted
	queue   [][]byte
	queued  int
	posting bool
	idle    chan struct{} // closes when the queue is empty; nil when nobody waits
}

// NewClient returns a client that has sent nothing yet.
func NewClient(cfg ClientConfig) *Client {
	if cfg.MaxQueue == 0 {
		cfg.MaxQueue = 16 << 20
	}
	c := &Client{cfg: cfg, posts: make(map[*exchange]struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Listening reports whether the session's own stream is open, so that the server
// can tell the client what belongs to no request.
func (c *Client) Listening() bool { return c.ears.Load() }

// SetVersion sets the negotiated protocol revision, which goes with every
// request from now on.
func (c *Client) SetVersion(version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = version
	c.prepared[wire.Legacy].Store(nil)
}

// closing bounds what Close waits for: what is queued, and then the DELETE.
const closing = 2 * time.Second

// Close posts what is queued, ends all streams and the session (DELETE), and
// waits for that, 4 s at most. Posts under way end at once.
func (c *Client) Close() {
	c.abort()
	c.flush()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	leave := c.session != "" && !c.gone
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	if leave {
		c.delete()
	}
}

// delete ends the session. A server that does not allow that says 405.
func (c *Client) delete() {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	resp, err := c.send(ctx, sending{method: http.MethodDelete})
	if err != nil {
		c.cfg.Log.Debug("ending the upstream session", "error", err)
		return
	}
	discard(resp)
}

// goAway ends the session that the server knows no more.
func (c *Client) goAway() {
	c.mu.Lock()
	already := c.gone
	c.gone = true
	c.mu.Unlock()
	if !already {
		c.cfg.Gone(errors.New("the upstream ended the session (HTTP 404)"))
	}
}

// hasSession reports whether a session id was given out.
func (c *Client) hasSession() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session != ""
}

// learn takes the session id that an answer to initialize brings.
func (c *Client) learn(h http.Header) error {
	id := h.Get(headerSession)
	if id == "" {
		return nil
	}
	for i := range len(id) {
		if id[i] < 0x21 || id[i] > 0x7e {
			return errors.New("reading the upstream's session id: it has characters other than visible ASCII")
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == "" {
		c.session = id
		c.prepared[wire.Legacy].Store(nil)
	}
	return nil
}

func (c *Client) authorization(ctx context.Context) (string, error) {
	if c.cfg.Authorize == nil {
		return "", nil
	}
	value, err := c.cfg.Authorize(ctx)
	if err != nil {
		return "", fmt.Errorf("authorizing with the upstream: %w", err)
	}
	return value, nil
}

// makeHeader makes the header of an era's POSTs.
func (c *Client) makeHeader(era wire.Era, auth string) http.Header {
	h := c.cfg.Header.Clone()
	if h == nil {
		h = make(http.Header)
	}
	h.Set("Accept", typeJSON+", "+typeSSE)
	h.Set("Content-Type", typeJSON)
	if h.Get("User-Agent") == "" {
		h.Set("User-Agent", "fsm-proxy")
	}
	if auth != "" {
		h.Set("Authorization", auth)
	}
	switch {
	case era == wire.Modern:
		h.Set(headerVersion, wire.ModernRevision)
		return h
	case c.session != "":
		h.Set(headerSession, c.session)
	}
	if c.version != "" {
		h.Set(headerVersion, c.version)
	}
	return h
}

// unsent is a request of which certainly nothing was written.
func unsent(err error) *wire.CallError { return &wire.CallError{Err: err} }

// lost is a request that was written and has no answer.
func lost(status int, err error) *wire.CallError {
	return &wire.CallError{Sent: true, Status: status, Err: err}
}
