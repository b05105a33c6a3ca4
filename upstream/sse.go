package upstream

import (
	"context"

	"github.com/fsm-proxy/fsm-proxy/internal/process"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp/client"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

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

func (l *sseLink) greeted(_ wire.Era, version string) { l.client.SetVersion(version) }

func (l *sseLink) hears() bool { return true }

func (l *sseLink) streams() bool { return false }

func (l *sseLink) close() { l.client.Close() }
