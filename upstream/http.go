package upstream

import (
	"context"
	"errors"

	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp/client"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// httpLink is a session over Streamable HTTP.
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
		Opened:     c.dropAll,
		Streams:    s.streamed,
		Gone:       c.end,
	}
	if s.auth != nil {
		cfg.Authorize, cfg.Rejected = s.auth.header, s.auth.rejected
	}
	return cfg
}

func (l *httpLink) open(context.Context) error { return nil }

func (l *httpLink) start(*call) {}

// errCancelled is a call that was cancelled before it was posted.
var errCancelled = errors.New("cancelled before it was sent")

// wait posts the request and reads its stream.
func (l *httpLink) wait(ctx context.Context, k *call) outcome {
	if !k.post() {
		return k.giveUp(&wire.CallError{Err: errCancelled})
	}
	err := l.post(ctx, k)
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

// post sends a call's request and gives the call what comes on its stream.
func (l *httpLink) post(ctx context.Context, k *call) error {
	switch {
	case k.alone != nil:
		return l.ask(ctx, k)
	case l.conn.hello == nil:
		return l.client.Initialize(ctx, k.raw, k)
	}
	return l.client.Post(ctx, k.raw, k)
}

func (l *httpLink) notify(raw []byte) error { return l.client.Notify(raw) }

func (l *httpLink) greeted(era wire.Era, version string) {
	l.client.SetEra(era)
	if era == wire.Legacy {
		l.client.SetVersion(version)
	}
}

func (l *httpLink) close() { l.client.Close() }

// hears implements link. What the server says while nobody listens is lost, and
// some servers have no such stream at all.
func (l *httpLink) hears() bool { return l.client.Listening() }

func (l *httpLink) streams() bool { return true }
