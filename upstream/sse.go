package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/fsm-proxy/fsm-proxy/internal/process"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// sseLink is a connection over the old HTTP+SSE transport (2024-11-05): one
// stream for all that the server says, one POST for each message to it.
//
// mcp-go's client transport opens the stream, waits for the endpoint, checks
// that it is on the same host, and posts. Left to itself it would decode and
// encode every message, drop the server's requests and give up an answer after
// 60 s. So the bytes go round it: its HTTP client is ours, which takes the
// messages off the stream before mcp-go sees them, and puts the raw bytes into
// the POST. Nothing is lost but what the transport never had: messages are not
// tied to the call that they belong to, and a stream that breaks cannot be
// resumed, which ends the connection.
type sseLink struct {
	conn   *Conn
	sse    *transport.SSE
	opened bool
	over   chan struct{} // closes when mcp-go reads the stream no more

	mu     sync.Mutex // guards what follows
	queue  []posting
	queued int
	busy   bool
	closed bool
	wg     sync.WaitGroup
}

// posting is a message that waits to be posted; k is its call, nil for none.
type posting struct {
	raw []byte
	k   *call
}

// postTimeout bounds one POST. Its answer is a mere 202.
const postTimeout = 30 * time.Second

func newSSELink(c *Conn) *sseLink { return &sseLink{conn: c, over: make(chan struct{})} }

func (l *sseLink) open(ctx context.Context) error {
	cfg := &l.conn.srv.cfg
	client := &http.Client{Transport: (*sseTripper)(l), CheckRedirect: sameHost}
	sse, err := transport.NewSSE(cfg.endpoint.String(),
		transport.WithHTTPClient(client),
		transport.WithEndpointTimeout(cfg.DialTimeout),
		transport.WithSSELogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	l.sse = sse
	sse.SetConnectionLostHandler(func(err error) { l.conn.end(fmt.Errorf("the upstream's event stream ended: %w", err)) })
	// The stream lives as long as the context of Start.
	defer context.AfterFunc(ctx, func() { _ = sse.Close() })()
	if err := sse.Start(context.WithoutCancel(ctx)); err != nil {
		return withoutURL(err)
	}
	return ctx.Err()
}

// withoutURL takes the URL out of an error: it holds the session's id.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// sameHost follows redirects that neither leave the server nor change the
// request.
func sameHost(req *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case req.URL.Host != first.URL.Host || req.URL.Scheme != first.URL.Scheme:
		return fmt.Errorf("the upstream redirects to another host, %s://%s, which is not followed", req.URL.Scheme, req.URL.Host)
	case req.Method != first.Method || len(via) > 5:
		return errors.New("the upstream redirects in a way that is not followed")
	}
	return nil
}

func (l *sseLink) start(k *call) {
	if err := l.enqueue(posting{k.raw, k}); err != nil {
		k.finish(outcome{err: &wire.CallError{Err: err}})
	}
}

func (l *sseLink) wait(ctx context.Context, k *call) outcome { return k.await(ctx) }

func (l *sseLink) notify(raw []byte) error { return l.enqueue(posting{raw: raw}) }

// enqueue has a message posted after those before it.
func (l *sseLink) enqueue(p posting) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if l.queued > process.MaxInput {
		return errors.New("the upstream takes no messages: too many wait to be posted")
	}
	l.queue, l.queued = append(l.queue, p), l.queued+len(p.raw)
	if !l.busy {
		l.busy = true
		l.wg.Go(l.post)
	}
	return nil
}

// post posts what is queued, and ends when nothing is.
func (l *sseLink) post() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 || l.closed {
			l.busy = false
			l.mu.Unlock()
			return
		}
		p := l.queue[0]
		l.queue, l.queued = l.queue[1:], l.queued-len(p.raw)
		l.mu.Unlock()
		l.postOne(p)
	}
}

func (l *sseLink) postOne(p posting) {
	sent := &sentPost{raw: p.raw}
	ctx, cancel := context.WithTimeout(context.WithValue(l.conn.ctx, postKey{}, sent), postTimeout)
	defer cancel()
	err := l.sse.SendNotification(ctx, mcp.JSONRPCNotification{})
	if err == nil {
		return
	}
	failed := &wire.CallError{Sent: sent.sent, Status: sent.status, Err: withoutURL(err)}
	if sent.status != 0 {
		failed.Err = errors.New(http.StatusText(sent.status))
	}
	if p.k == nil {
		l.conn.log().Warn("posting a notification to the upstream", "error", failed)
		return
	}
	p.k.finish(outcome{err: failed})
}

func (l *sseLink) greeted(_ wire.Era, version string) { l.sse.SetProtocolVersion(version) }

func (l *sseLink) hears() bool { return true }

func (l *sseLink) streams() bool { return false }

func (l *sseLink) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	if l.sse != nil {
		_ = l.sse.Close()
	}
	l.wg.Wait()
	if l.opened {
		<-l.over
	}
}

// sentPost goes with a POST through mcp-go: in goes the body, out comes what
// became of it.
type sentPost struct {
	raw    []byte
	sent   bool
	status int
}

type postKey struct{}

// sseTripper is what mcp-go's transport sends its requests by.
type sseTripper sseLink

// RoundTrip implements http.RoundTripper.
func (t *sseTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	req, err := t.prepare(req)
	if err != nil {
		return nil, err
	}
	post, _ := req.Context().Value(postKey{}).(*sentPost)
	resp, err := t.conn.srv.transport.RoundTrip(req)
	if post != nil {
		post.sent = post.sent || err == nil || !streamhttp.NotSent(err)
		if err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusAccepted {
			post.status = resp.StatusCode
		}
	}
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusUnauthorized && t.conn.srv.auth != nil {
		t.conn.srv.auth.rejected(resp)
	}
	if req.Method == http.MethodGet && resp.StatusCode == http.StatusOK {
		t.opened = true
		resp.Body = &sseBody{link: (*sseLink)(t), body: resp.Body, events: streamhttp.NewEventReader(resp.Body, t.conn.srv.cfg.MaxMessage)}
	}
	return resp, nil
}

// prepare gives a request its headers, and a POST its raw body.
func (t *sseTripper) prepare(req *http.Request) (*http.Request, error) {
	req = req.Clone(req.Context())
	for name, values := range t.conn.srv.cfg.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Header.Del("Connection")
	if auth := t.conn.srv.auth; auth != nil {
		value, err := auth.header(req.Context())
		if err != nil {
			return nil, fmt.Errorf("authorizing with the upstream: %w", err)
		}
		req.Header.Set("Authorization", value)
	}
	if post, ok := req.Context().Value(postKey{}).(*sentPost); ok {
		req.Body = streamhttp.NewBody(post.raw)
		req.GetBody = func() (io.ReadCloser, error) { return streamhttp.NewBody(post.raw), nil }
		req.ContentLength = int64(len(post.raw))
	}
	return req, nil
}

// sseBody is the stream as mcp-go sees it: the endpoint alone. Messages are
// taken out as it reads.
type sseBody struct {
	link   *sseLink
	body   io.ReadCloser
	events *streamhttp.EventReader
	rest   []byte
}

func (b *sseBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		e, err := b.events.Next()
		if err != nil {
			return 0, err
		}
		switch e.Name {
		case "endpoint":
			b.rest = fmt.Appendf(nil, "event: endpoint\ndata: %s\n\n", e.Data)
		case "message", "":
			b.link.conn.receive(e.Data, nil)
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *sseBody) Close() error {
	defer close(b.link.over)
	return b.body.Close()
}
