package cli

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

// Servers show different lists to different clients, and change them while a
// client settles in. So the client that takes an inventory claims to be able to
// do everything, and lists again as long as the server says that a list changed.
const (
	settleTime  = 300 * time.Millisecond // of silence, after which the lists count as final
	maxListings = 10
)

// lister is the client that takes an inventory.
type lister struct {
	changed chan struct{} // holds one item when a list has changed

	mu     sync.Mutex // guards what follows
	answer func(raw []byte) error
	early  [][]byte // answers from before there was anybody to give them to
}

func newLister() *lister { return &lister{changed: make(chan struct{}, 1)} }

// opening introduces the client in both eras. The legacy one goes first: servers
// that do not know the other may leave it unanswered.
func (l *lister) opening() upstream.Opening {
	info := fmt.Sprintf(`{"name":"fsm-proxy","version":%s}`, wire.AppendString(nil, versionText()))
	const asks = `"sampling":{},"elicitation":{"form":{},"url":{}}`
	return upstream.Opening{
		Initialize: request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{`+asks+`,"roots":{"listChanged":true}},"clientInfo":`+info+`}`),
		Discover: request("server/discover", `{"_meta":{"`+wire.MetaVersion+`":"`+wire.ModernRevision+`","`+
			wire.MetaCapabilities+`":{`+asks+`,"roots":{}},"`+wire.MetaClientInfo+`":`+info+`}}`),
	}
}

// request makes a request of params that are known to be right.
func request(method, params string) *wire.Message {
	m, err := wire.Read(wire.RequestMessage(1, method, []byte(params)), wire.FromClient)
	if err != nil {
		panic(err)
	}
	return m
}

// Receive notes that a list has changed and answers what the server asks: it has
// no roots to give, and nobody to put a question to.
func (l *lister) Receive(m *wire.Message, _ any) {
	switch {
	case m.Kind == wire.Notification && strings.HasSuffix(m.Method, "/list_changed"):
		select {
		case l.changed <- struct{}{}:
		default:
		}
	case m.Kind != wire.Request:
	case m.Method == "ping":
		l.send(wire.ResultAnswer(m.Bytes(m.ID), []byte(`{}`)))
	case m.Method == "roots/list":
		l.send(wire.ResultAnswer(m.Bytes(m.ID), []byte(`{"roots":[]}`)))
	default:
		l.send(wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeInvalidRequest, "this client only lists", nil))
	}
}

// serve says where answers go, and gives it those that are waiting.
func (l *lister) serve(conn interface{ Notify(raw []byte) error }) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = conn.Notify
	for _, raw := range l.early {
		_ = conn.Notify(raw)
	}
}

// send gives an answer to the server. One that does not reach it is no loss: the
// listing itself then fails, and says why.
func (l *lister) send(raw []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answer == nil {
		l.early = append(l.early, raw)
		return
	}
	_ = l.answer(raw)
}

// settle waits until no list has changed for a while, and reports whether one
// had.
func (l *lister) settle(ctx context.Context) (changed bool) {
	silence := time.NewTimer(settleTime)
	defer silence.Stop()
	for {
		select {
		case <-l.changed:
			changed = true
			silence.Reset(settleTime)
		case <-silence.C:
			return changed
		case <-ctx.Done():
			return changed
		}
	}
}
