//go:build unix

package streamhttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// eachTransport runs a test over the lean transport and over net/http's.
func eachTransport(t *testing.T, test func(*testing.T, func(*ClientConfig))) {
	t.Run("lean", func(t *testing.T) { test(t, func(*ClientConfig) {}) })
	t.Run("standard", func(t *testing.T) {
		transport := newStandard()
		t.Cleanup(transport.CloseIdleConnections)
		test(t, func(cfg *ClientConfig) { cfg.Transport = transport })
	})
}

// TestAsk stands alone: no session, whatever there was before, and the header says
// what the body does.
func TestAsk(t *testing.T) {
	eachTransport(t, func(t *testing.T, change func(*ClientConfig)) {
		s := newRawServer(t, behaving(func(c net.Conn, req *http.Request, body string) {
			h := req.Header
			if h.Get("Mcp-Protocol-Version") != wire.ModernRevision || h.Get("Mcp-Session-Id") != "" || h.Get("X-Extra") != "yes" ||
				h.Get("Mcp-Method") != "tools/call" || h.Get("Mcp-Name") != "x" || h.Get("Mcp-Param-A") != "1" || body != rawQuestion {
				t.Error("request:", h, body)
			}
			sendReply(c, "Content-Type: application/json\r\n", rawAnswer)
		}))
		c := newClientRig(t, s, change)
		c.open(t)
		m, err := wire.Read([]byte(rawQuestion), wire.FromUpstream)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var g gathered
			fields := append(MirrorFields(m), Field{"Mcp-Param-A", "1"})
			if err := c.Ask(t.Context(), new(wire.Life), m.Raw, fields, &g); err != nil || len(g.messages) != 1 {
				t.Error(err, g.messages)
			}
		}
	})
}

// TestAskEndsWithItsLife closes the stream, which the server sees.
func TestAskEndsWithItsLife(t *testing.T) {
	eachTransport(t, func(t *testing.T, change func(*ClientConfig)) {
		begun, ended := make(chan struct{}), make(chan struct{})
		s := newRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) {
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + eventOf(rawNote)))
			close(begun)
			_, _ = c.Read(make([]byte, 1))
			close(ended)
		})
		c := newClientRig(t, s, change)
		var life wire.Life
		go func() { <-begun; life.End() }()
		err := c.Ask(context.Background(), &life, []byte(rawQuestion), nil, new(gathered))
		if e, ok := errors.AsType[*wire.CallError](err); !ok || !e.Sent || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-ended
	})
}

// TestMirrorFieldsCarryNothingElse whatever a method is made of.
func TestMirrorFieldsCarryNothingElse(t *testing.T) {
	m, err := wire.Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"a\r\nHost: b","params":{"name":"c"}}`), wire.FromUpstream)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range MirrorFields(m) {
		if strings.ContainsAny(f.Name+f.Value, "\r\n") {
			t.Errorf("%q", f)
		}
	}
}
