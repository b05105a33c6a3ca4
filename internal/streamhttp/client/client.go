// Package client is the client's side of MCP's Streamable HTTP, in both eras, and of HTTP+SSE,
// which came before it.
package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/http1"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

const (
	// maxRedirects is how many redirects of one request are followed.
	maxRedirects = 5
	// closing bounds what Close waits for: what is queued, and then the DELETE.
	closing = 2 * time.Second

	headerSession = "Mcp-Session-Id"
	typeJSON      = "application/json"
	typeSSE       = "text/event-stream"
)

// Client is the client's side of Streamable HTTP. In the legacy era (protocol
// 2025-03-26 to 2025-11-25) it is one session with a server, which begins with
// [Client.Initialize]; in the modern one (2026-07-28) there are none, and each
// [Client.Ask] is a request by itself. Over HTTP+SSE (2024-11-05) it begins with
// [Client.OpenSSE]. It is safe for concurrent use.
type Client struct {
	cfg       Config
	ctx       context.Context // ends when Close has posted what was queued
	cancel    context.CancelFunc
	wg        sync.WaitGroup // the session's own stream, the queue, streams that outlive their answer
	listening atomic.Bool    // the session's own stream is open

	// Read by each request without the lock, under which they are written:
	prepared     [2]atomic.Pointer[prepared]   // by era; nil: to be made
	initializing atomic.Pointer[chan struct{}] // requests wait until it closes; nil: for nothing
	endpoint     atomic.Pointer[url.URL]       // where POSTs go over HTTP+SSE; nil: to cfg.URL

	_       [64]byte               // what every call writes lies on no cache line with what it only reads
	mu      sync.Mutex             // guards what follows
	posts   map[*exchange]struct{} // requests under way
	aborted bool                   // there are to be no more
	session string
	version string
	era     wire.Era // of notifications
	gone    bool
	closed  bool
	opened  bool // notifications/initialized was posted
	queue   queue
}

// New returns a client that has sent nothing yet.
func New(cfg Config) *Client {
	if cfg.MaxQueue == 0 {
		cfg.MaxQueue = 16 << 20
	}
	c := &Client{cfg: cfg, posts: make(map[*exchange]struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Listening reports whether the session's own stream is open, so that the server
// can tell the client what belongs to no request.
func (c *Client) Listening() bool { return c.listening.Load() }

// SetVersion sets the negotiated protocol revision, which goes with every
// request from now on.
func (c *Client) SetVersion(version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = version
	c.prepared[wire.Legacy].Store(nil)
}

// SetEra says of which era the messages given to [Client.Notify] are from now on:
// of the legacy one without it.
func (c *Client) SetEra(era wire.Era) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.era = era
}

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

// end tells, once, that the server knows the session no more.
func (c *Client) end(err error) {
	c.mu.Lock()
	already := c.gone
	c.gone = true
	c.mu.Unlock()
	if !already {
		c.cfg.Gone(err)
	}
}

var errForgotten = errors.New("the upstream ended the session (HTTP 404)")

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
func (c *Client) Ask(ctx context.Context, life *deadline.Life, body []byte, fields []http1.Field, sink Sink) error {
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
	life   *deadline.Life // its stream ends with it
	own    deadline.Life  // where none was given
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
	stop := deadline.AfterFunc(ctx, x.life.End)
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

// sending is one request to be sent.
type sending struct {
	method string
	body   []byte
	lastID string // of a stream to be resumed; empty: none
	era    wire.Era
	fields []http1.Field // of the header, besides those of all requests
	moved  bool          // any redirect is followed, as HTTP+SSE has it for its stream
}

// send sends one request and returns the answer, whatever its status. The error
// says whether it was sent.
func (c *Client) send(ctx context.Context, s sending) (*http.Response, *wire.CallError) {
	target, redirected := c.cfg.URL, false
	if s.method == http.MethodPost {
		target = c.postURL()
	}
	for range maxRedirects {
		resp, err := c.sendTo(ctx, target, s, redirected)
		if err != nil {
			err.Sent = err.Sent || redirected
			return nil, err
		}
		if resp.StatusCode < 300 || resp.StatusCode > 399 {
			return resp, nil
		}
		discard(resp)
		next, bad := redirect(target, resp, s.moved)
		if bad != nil {
			return nil, lost(resp.StatusCode, bad)
		}
		target, redirected = next, true
	}
	return nil, lost(0, fmt.Errorf("the upstream redirected more than %d times", maxRedirects))
}

// postURL is where POSTs go.
func (c *Client) postURL() *url.URL {
	if endpoint := c.endpoint.Load(); endpoint != nil {
		return endpoint
	}
	return c.cfg.URL
}

func (c *Client) sendTo(ctx context.Context, target *url.URL, s sending, redirected bool) (*http.Response, *wire.CallError) {
	p, err := c.prepare(ctx, s.era)
	if err != nil {
		return nil, unsent(err)
	}
	var resp *http.Response
	if t, ok := c.cfg.Transport.(*http1.Transport); ok && s.method == http.MethodPost && !redirected {
		resp, err = t.Send(ctx, p.post, s.fields, s.body)
	} else {
		resp, err = c.cfg.Transport.RoundTrip(p.request(ctx, target, s))
	}
	if err != nil {
		return nil, &wire.CallError{Sent: !http1.NotSent(err), Err: err}
	}
	if resp.StatusCode == http.StatusUnauthorized && c.cfg.Rejected != nil {
		c.cfg.Rejected(resp)
	}
	if resp.Header["Content-Encoding"] != nil {
		resp = decoded(resp)
	}
	return resp, nil
}

// prepared is what all POSTs of an era have in common. It is never changed.
type prepared struct {
	auth   string
	header http.Header
	post   *http1.Prepared // for an [http1.Transport]; nil: it is none
}

// prepare returns what POSTs of an era have in common.
func (c *Client) prepare(ctx context.Context, era wire.Era) (*prepared, error) {
	auth := ""
	if c.cfg.Authorize != nil {
		var err error
		if auth, err = c.cfg.Authorize(ctx); err != nil {
			return nil, fmt.Errorf("authorizing with the upstream: %w", err)
		}
	}
	if p := c.prepared[era].Load(); p != nil && p.auth == auth {
		return p, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &prepared{auth: auth, header: c.headerLocked(era, auth)}
	if _, ok := c.cfg.Transport.(*http1.Transport); ok {
		var err error
		if p.post, err = http1.Prepare(p.request(context.Background(), c.postURL(), sending{method: http.MethodPost})); err != nil {
			return nil, err
		}
	}
	c.prepared[era].Store(p)
	return p, nil
}

// headerLocked makes the header of an era's POSTs.
func (c *Client) headerLocked(era wire.Era, auth string) http.Header {
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
	version := c.version
	if era == wire.Modern {
		version = wire.ModernRevision
	} else if c.session != "" {
		h.Set(headerSession, c.session)
	}
	if version != "" {
		h.Set(wire.HeaderVersion, version)
	}
	return h
}

// request makes a request. The header of a POST is shared: a transport does not
// change it.
func (p *prepared) request(ctx context.Context, target *url.URL, s sending) *http.Request {
	req := (&http.Request{
		Method: s.method, URL: target, Host: target.Host, Header: p.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if s.method != http.MethodPost || len(s.fields) > 0 {
		req.Header = p.header.Clone()
	}
	for _, f := range s.fields {
		req.Header[f.Name] = []string{f.Value}
	}
	if s.method != http.MethodPost {
		req.Header.Del("Content-Type")
		req.Header.Set("Accept", typeSSE)
	}
	if s.lastID != "" {
		req.Header.Set("Last-Event-Id", s.lastID)
	}
	if s.body != nil {
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(s.body)), nil }
		req.Body, _ = req.GetBody()
		req.ContentLength = int64(len(s.body))
	}
	return req
}

// redirect returns where an answer wants the same request sent, within the same scheme and
// host: 307 and 308, or any that says that it has moved. Anything else could carry the request,
// and the credentials that go with it, to somebody else.
func redirect(from *url.URL, resp *http.Response, moved bool) (*url.URL, error) {
	to, err := from.Parse(resp.Header.Get("Location"))
	if err != nil || resp.Header.Get("Location") == "" {
		return nil, fmt.Errorf("the upstream answered HTTP %d without a usable Location", resp.StatusCode)
	}
	if to.Scheme != from.Scheme || to.Host != from.Host {
		return nil, fmt.Errorf("the upstream redirects to another host, %s://%s, which is not followed: give that URL if it is right", to.Scheme, to.Host)
	}
	if !moved && resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return nil, fmt.Errorf("the upstream redirects with HTTP %d, which would change the request: give %s if that is right", resp.StatusCode, to.Path)
	}
	to.Fragment = ""
	return to, nil
}

// mediaType is the type of an answer's body.
func mediaType(resp *http.Response) string {
	value := resp.Header.Get("Content-Type")
	if value == typeJSON || value == typeSSE {
		return value
	}
	t, _, _ := mime.ParseMediaType(value)
	return t
}

// discard reads a short body to its end, so that the connection can be used
// again, and closes it.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	_ = resp.Body.Close()
}

// readAll reads a body of limit bytes at most, and sees the end behind it.
func readAll(resp *http.Response, limit int) ([]byte, error) {
	defer resp.Body.Close()
	n := resp.ContentLength
	if n < 0 {
		raw, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
		if err == nil && len(raw) > limit {
			return nil, fmt.Errorf("reading the answer: it has more than %d bytes", limit)
		}
		return raw, err
	}
	if n > int64(limit) {
		return nil, fmt.Errorf("reading the answer: it has %d bytes, %d are allowed", n, limit)
	}
	raw := make([]byte, n+1)
	switch got, err := io.ReadFull(resp.Body, raw); {
	case err == nil:
		return nil, fmt.Errorf("reading the answer: more than its %d bytes", n)
	case got == int(n) && (err == io.ErrUnexpectedEOF || err == io.EOF):
		return raw[:n:n], nil
	case err == io.EOF:
		return nil, io.ErrUnexpectedEOF
	default:
		return nil, err
	}
}

// unsent is a request of which certainly nothing was written.
func unsent(err error) *wire.CallError { return &wire.CallError{Err: err} }

// lost is a request that was written and has no answer.
func lost(status int, err error) *wire.CallError {
	return &wire.CallError{Sent: true, Status: status, Err: err}
}
