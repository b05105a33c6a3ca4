package proxy

import (
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// TestConnectionIsLostAsItAsks: an ask is open, its call has ended, and nothing is
// held for its client yet.
func TestConnectionIsLostAsItAsks(t *testing.T) {
	s := &session{p: &Proxy{cfg: Config{MaxInFlight: 1, AskTimeout: time.Hour}}, own: &bridge.Listeners{}, runPeers: runPeers{ofRun: true}}
	a := &ask{call: &call{s: s, m: &wire.Message{}, stateless: &stateless{}, client: bridge.Stateless, flight: flight{stage: stageEnded}}, id: []byte("7")}
	if !s.enterAsk(a) {
		t.Fatal("the ask is not entered")
	}
	s.forgetAsks(a.conn)
	if open := s.openAsks(); len(open) != 0 {
		t.Errorf("open: %v", open)
	}
}
