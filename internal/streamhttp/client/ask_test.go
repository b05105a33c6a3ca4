//go:build unix

package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"

	"github.com/fsm-proxy/fsm-proxy/internal/http1"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// eachTransport runs a test over http1's transport and over net/http's.
func eachTransport(t *testing.T, test func(*testing.T, func(*Config))) {
	t.Run("http1", func(t *testing.T) { test(t, func(*Config) {}) })
	t.Run("standard", func(t *testing.T) {
		transport := http1.NewStandard()
		t.Cleanup(transport.CloseIdleConnections)
		test(t, func(cfg *Config) { cfg.Transport = transport })
	})
}

// TestAsk stands alone: no session, whatever there was before, and the header says
// what the body does.
func TestAsk(t *testing.T) {
	eachTransport(t, func(t *testing.T, change func(*Config)) {
		s := mcptest.NewRawServer(t, behaving(func(c net.Conn, req *http.Request, body string) {
			h := req.Header
			if h.Get("Mcp-Protocol-Version") != wire.ModernRevision || h.Get("Mcp-Session-Id") != "" || h.Get("X-Extra") != "yes" ||
				h.Get("Mcp-Method") != "tools/call" || h.Get("Mcp-Name") != "x" || h.Get("Mcp-Param-A") != "1" || body != rawQuestion {
				t.Error("request:", h, body)
			}
			mcptest.RawReply(c, "Content-Type: application/json\r\n", rawAnswer)
		}))
		c := newClientRig(t, s, change)
		c.open(t)
		m, err := wire.Read([]byte(rawQuestion), wire.FromUpstream)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var g gathered
			fields := append(MirrorFields(m), http1.Field{Name: "Mcp-Param-A", Value: "1"})
			if err := c.Ask(t.Context(), new(deadline.Life), m.Raw, fields, &g); err != nil || len(g.messages) != 1 {
				t.Error(err, g.messages)
			}
		}
	})
}

// TestAskEndsWithItsLife closes the stream, which the server sees.
func TestAskEndsWithItsLife(t *testing.T) {
	eachTransport(t, func(t *testing.T, change func(*Config)) {
		begun, ended := make(chan struct{}), make(chan struct{})
		s := mcptest.NewRawServer(t, func(c net.Conn, _ int, _ *http.Request, _ string) {
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + eventOf(rawNote)))
			close(begun)
			_, _ = c.Read(make([]byte, 1))
			close(ended)
		})
		c := newClientRig(t, s, change)
		var life deadline.Life
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
