package peers_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/peers"
)

// What a process asks by itself is answered whole, or not at all, and in time.
func TestAsk(t *testing.T) {
	t.Parallel()
	var d database
	who := peers.Passenger{Who: &asker.Who{Issuer: "admin", Subject: "olga"}, Door: "operators"}
	owner := d.begin(t, 2, func(w http.ResponseWriter, r *http.Request, from peers.Passenger) {
		if from.Door != who.Door || !from.Who.Equal(who.Who) || r.Method != http.MethodGet {
			t.Errorf("%s for %+v", r.Method, from)
		}
		switch r.URL.Path {
		case "/hangs":
			hang(r, nil)
		case "/long":
			_, _ = w.Write([]byte(strings.Repeat("x", 11)))
		case "/all":
			_, _ = w.Write([]byte(r.URL.RawQuery))
		default:
			peers.NotHere(w, r)
		}
	}, nil)
	p := d.sender(t)
	ctx, stop := context.WithTimeout(t.Context(), mcptest.Patience)
	defer stop()
	if said, err := p.Ask(ctx, owner.peer, "/all?after=a%2F", who, 10); err != nil || string(said) != "after=a%2F" {
		t.Errorf("%q, %v", said, err)
	}
	for path, want := range map[string]string{"/long": "longer than 10 bytes", "/none": "421"} {
		if said, err := p.Ask(ctx, owner.peer, path, who, 10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", path, said, err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if said, err := p.Ask(short, owner.peer, "/hangs", who, 10); err == nil || !errors.Is(short.Err(), context.DeadlineExceeded) {
		t.Errorf("%q, %v", said, err)
	}
	d.end(2)
	if said, err := p.Ask(ctx, owner.peer, "/hangs", who, 10); err == nil || ctx.Err() != nil {
		t.Errorf("of one whose lease is over: %q, %v", said, err)
	}
}
