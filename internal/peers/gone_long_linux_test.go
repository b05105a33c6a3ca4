//go:build long

package peers_test

import (
	"net/http"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/network"
	"github.com/fsm-proxy/fsm-proxy/internal/peers"
)

// The machine of an owner is gone without a word, and nobody ends its lease: what was passed on to it is lost.
func TestOwnerWhoseMachineIsGone(t *testing.T) {
	loopback, ok := network.Own(t)
	if !ok {
		return
	}
	var d database
	asked := make(chan struct{})
	owner := d.begin(t, 2, func(_ http.ResponseWriter, r *http.Request, _ peers.Passenger) { hang(r, asked) }, nil)
	f := d.sender(t).front(t, owner.peer, peers.Passenger{})
	called := make(chan struct{})
	go func() {
		defer close(called)
		if resp, err := f.client.Get(f.url); err == nil {
			resp.Body.Close()
		}
	}()
	receive(t, asked, "the call at its owner")
	loopback(false)
	if got := f.outcome(t); got != peers.Lost {
		t.Errorf("the call was %v", got)
	}
	loopback(true)
	receive(t, called, "what its client hears")
}
