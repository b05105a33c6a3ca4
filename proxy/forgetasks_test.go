package proxy

import (
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/asks"
)

// TestConnectionIsLostAsItAsks: an ask is open, its call has ended, and nothing is
// held for its client yet.
func TestConnectionIsLostAsItAsks(t *testing.T) {
	p := &Proxy{asks: asks.Config{Most: 1, Timeout: time.Hour}}
	s := &session{p: p, own: &bridge.Listeners{}, runPeers: runPeers{ofRun: true}}
	c := &call{s: s, m: &wire.Message{}, stateless: &stateless{}, client: bridge.Stateless}
	c.flight.Finish()
	client := &asked{s: s}
	var conn *bridge.Upstream
	s.asks.Ask(&p.asks, client, conn, wire.Made(wire.RequestMessage(7, "roots/list", nil)), c)
	if !s.asks.Any() {
		t.Fatal("the ask is not entered")
	}
	s.asks.Withdraw(client, conn, "")
	if s.asks.Any() {
		t.Error("it is open still")
	}
	if client.told != 2 {
		t.Errorf("the client was told %d times", client.told)
	}
}

// asked is a session whose client is told of a request as if it took it.
type asked struct {
	s    *session
	told int
}

func (a *asked) SendAsk(raw []byte, of asks.For) bool {
	a.told++
	a.s.SendAsk(raw, of)
	return true
}

func (a *asked) Unanswered(string) {}
