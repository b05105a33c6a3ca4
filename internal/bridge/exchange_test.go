package bridge

import (
	"context"
	"runtime"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// asking is a connection whose server answers each request by asking the client.
type asking struct{ Conn }

func (asking) Era() wire.Era         { return wire.Modern }
func (asking) Done() <-chan struct{} { return nil }
func (asking) Notify([]byte) error   { return nil }
func (asking) Start(m *wire.Message, _ any) wire.Call {
	return absorbed{answer: wire.Made([]byte(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}}}}`))}
}

// nobody is a client that does not answer.
type nobody struct{}

func (nobody) Receive(*wire.Message, any) {}

// caller is one who can be asked.
type caller struct{}

func (caller) Asks() bool         { return true }
func (caller) MayAsk(string) bool { return true }
func (caller) Resend() error      { return nil }
func (caller) Go(f func()) bool   { go f(); return true }

// A call that is cancelled at the moment at which its client is asked just ends.
func TestCancelAsTheClientIsAsked(t *testing.T) {
	for range 20_000 {
		u := NewUpstream(asking{}, nobody{})
		m, err := wire.Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`), wire.FromClient)
		if err != nil {
			t.Fatal(err)
		}
		x := u.Start(m, caller{}).(*exchange)
		go func() {
			for {
				x.mu.Lock()
				asked := x.ended != nil
				x.mu.Unlock()
				if asked {
					x.Cancel(nil)
					return
				}
				runtime.Gosched()
			}
		}()
		_, _ = x.Wait(context.Background())
	}
}
