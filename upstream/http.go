package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/http1"
	"github.com/fsm-proxy/fsm-proxy/internal/process"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp/client"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// httpLink is a session over Streamable HTTP, or in the modern era requests without one.
type httpLink struct {
	conn   *Conn
	client *client.Client
}

func newHTTPLink(c *Conn) *httpLink { return &httpLink{conn: c, client: client.New(clientConfig(c))} }

// clientConfig says how a connection reaches its server over HTTP.
func clientConfig(c *Conn) client.Config {
	s := c.srv
	cfg := client.Config{
		URL:        s.cfg.endpoint,
		Header:     s.cfg.Header,
		Transport:  s.transport,
		MaxMessage: s.cfg.MaxMessage,
		Log:        s.cfg.Log,
		Receive:    func(raw []byte) { c.receive(raw, nil) },
		Opened:     c.dropLists,
		Streams:    s.streamed,
		Gone:       c.end,
	}
	if s.auth != nil {
		cfg.Authorize, cfg.Rejected = s.auth.header, s.auth.rejected
	}
	return cfg
}

// Polls reports whether the upstream may end the stream of a request before its answer
// and have the client come back for that (2025-11-25, SEP-1699): it has answered a
// request with an event stream.
func (s *Server) Polls() bool { return s.polls.Load() }

func (s *Server) streamed() {
	if !s.polls.Load() { // or each call would write what all read
		s.polls.Store(true)
	}
}

func (l *httpLink) open(context.Context) error { return nil }

func (l *httpLink) start(*call) {}

// errCancelled is a call that was cancelled before it was posted.
var errCancelled = errors.New("cancelled before it was sent")

// wait posts the request and gives the call what comes on its stream.
func (l *httpLink) wait(ctx context.Context, k *call) outcome {
	if !k.beginPost() {
		return k.giveUp(&wire.CallError{Err: errCancelled})
	}
	var err error
	switch {
	case k.modern != nil:
		err = l.postModern(ctx, k)
	case l.conn.hello == nil:
		err = l.client.Initialize(ctx, k.raw, k)
	default:
		err = l.client.Post(ctx, k.raw, k)
	}
	if err == nil {
		return k.outcome()
	}
	failed, ok := errors.AsType[*wire.CallError](err)
	if !ok {
		failed = &wire.CallError{Sent: true, Err: err}
	}
	o := k.giveUp(failed)
	if o.err != nil && (failed.Status != 0 || !failed.Sent) {
		o.err = failed // the connection's end, if it came first, knows less
	}
	return o
}

func (l *httpLink) notify(raw []byte) error { return l.client.Notify(raw) }

func (l *httpLink) negotiated(era wire.Era, version string) {
	l.client.SetEra(era)
	if era == wire.Legacy {
		l.client.SetVersion(version)
	}
}

func (l *httpLink) close() { l.client.Close() }

// listening implements link. What the server says while nobody listens is lost, and
// some servers have no such stream at all.
func (l *httpLink) listening() bool { return l.client.Listening() }

func (l *httpLink) streams() bool { return true }

// Take implements client.Sink for a call whose messages come on a stream of
// their own.
func (k *call) Take(raw []byte) bool { return k.conn.receive(raw, k) }

// Refused implements client.Sink.
func (k *call) Refused(raw []byte) bool {
	m, err := wire.Read(raw, wire.FromUpstream)
	if err != nil || m.Kind != wire.Failure {
		return false
	}
	if id, ok := number(m.Bytes(m.ID)); m.ID.Present() && !(ok && id == k.id) {
		return false
	}
	return k.keepMismatch(m) || k.finish(outcome{m: k.withID(m)})
}

// Paused implements client.Sink.
func (k *call) Paused(retry time.Duration) {
	if p, ok := k.tag.(wire.Pauser); ok {
		p.Pause(retry)
	}
}

// modernPost is what a request of the modern era over HTTP needs besides.
type modernPost struct {
	life    deadline.Life // of the stream: when it ends, the request is cancelled
	message *wire.Message
	// mismatch is the answer that the headers do not repeat the body, until it is
	// known that no others will. Guarded by nothing: the request's own goroutine has it.
	mismatch *wire.Message
	resent   bool // it was sent with other headers before
}

// postModern sends a request of the modern era. One that is refused since its headers do
// not repeat the body is sent once more if the list of tools now asks for others.
func (l *httpLink) postModern(ctx context.Context, k *call) error {
	post := k.modern
	fields := l.headerFields(ctx, post.message)
	err := l.client.Ask(ctx, &post.life, k.raw, fields, k)
	if post.mismatch == nil {
		return err
	}
	l.conn.lists[wire.Tools].drop()
	_, _ = l.conn.List(ctx, wire.Tools)
	others := l.headerFields(ctx, post.message)
	if slices.Equal(fields, others) {
		k.finish(outcome{m: post.mismatch})
		return nil
	}
	post.mismatch, post.resent = nil, true
	return l.client.Ask(ctx, &post.life, k.raw, others, k)
}

// keepMismatch keeps the refusal of a call whose headers may be outdated, and reports
// whether that is what it is.
func (k *call) keepMismatch(m *wire.Message) bool {
	if k.modern == nil || k.modern.resent || m.ErrorCode != wire.CodeHeaderMismatch || k.modern.message.Method != "tools/call" {
		return false
	}
	k.modern.mismatch = k.withID(m)
	return true
}

// headerFields returns the headers that repeat what is in a request. Those of a tool's arguments
// are known from the list of tools, which is read where it never was.
func (l *httpLink) headerFields(ctx context.Context, m *wire.Message) []http1.Field {
	fields := client.MirrorFields(m)
	if m.Method != "tools/call" {
		return fields
	}
	if l.conn.toolHeaders.Load() == nil {
		_, _ = l.conn.List(ctx, wire.Tools) // what comes of it, the call itself will show
		l.conn.toolHeaders.CompareAndSwap(nil, new(toolHeaders))
	}
	for _, header := range (*l.conn.toolHeaders.Load())[m.P.Name] {
		if value, ok := header.Value(m.Bytes(m.P.Arguments)); ok {
			fields = append(fields, http1.Field{Name: header.Name, Value: value})
		}
	}
	return fields
}

// toolHeaders are the arguments that calls of tools repeat in headers, by the tool's
// name. Most tools have none and are not in it.
type toolHeaders map[string][]wire.ParamHeader

// keepToolHeaders notes what the tools of a list want repeated, and leaves out those that
// no client may offer over HTTP (2026-07-28, basic/transports/streamable-http,
// "Custom Headers from Tool Parameters").
func (c *Conn) keepToolHeaders(l *wire.List) *wire.List {
	all := make(toolHeaders)
	l = l.Keep(func(tool wire.Item) bool {
		headers, err := wire.ParamHeaders(wire.Member(tool.Raw, "inputSchema"))
		if err != nil {
			c.log().Warn("a tool of the upstream is left out", "tool", fmt.Sprintf("%.128s", tool.Name), "error", err)
			return false
		}
		if headers != nil {
			all[tool.Name] = headers
		}
		return true
	})
	c.toolHeaders.Store(&all)
	return l
}

// sseLink is a connection over the old HTTP+SSE transport (2024-11-05): one
// stream for all that the server says, one POST for each message to it. Messages are
// not tied to the call that they belong to, and a stream that breaks cannot be
// resumed, which ends the connection.
type sseLink struct{ client *client.Client }

func newSSELink(c *Conn) *sseLink {
	cfg := clientConfig(c)
	cfg.MaxQueue = process.MaxInput
	return &sseLink{client.New(cfg)}
}

func (l *sseLink) open(ctx context.Context) error { return l.client.OpenSSE(ctx) }

func (l *sseLink) start(k *call) {
	failed := func(err *wire.CallError) { k.finish(outcome{err: err}) }
	if err := l.client.Queue(k.raw, failed); err != nil {
		failed(&wire.CallError{Err: err})
	}
}

func (l *sseLink) wait(ctx context.Context, k *call) outcome { return k.await(ctx) }

func (l *sseLink) notify(raw []byte) error { return l.client.Notify(raw) }

func (l *sseLink) negotiated(_ wire.Era, version string) { l.client.SetVersion(version) }

func (l *sseLink) listening() bool { return true }

func (l *sseLink) streams() bool { return false }

func (l *sseLink) close() { l.client.Close() }
