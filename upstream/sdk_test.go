//go:build unix

package upstream

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// sdkServers are the ways to go-sdk's conformance server, and the era that each is of
// to a client of both that would rather have the modern one.
func sdkServers(t *testing.T) map[string]struct {
	Config
	modern wire.Era
} {
	t.Helper()
	program, address := mcptest.ConformanceServer(t), mcptest.FreeAddress(t)
	mcptest.Start(t, nil, program, "-http", address).AwaitListening(address)
	return map[string]struct {
		Config
		modern wire.Era
	}{
		"stdio":     {Config{Command: []string{program}}, wire.Modern},
		"stateless": {Config{URL: "http://" + address + "/mcp"}, wire.Modern},
		"stateful":  {Config{URL: mcptest.ConformanceHTTP(t)}, wire.Legacy},
	}
}

// TestErasOfTheSDK are told apart, and what is asked in each is answered.
func TestErasOfTheSDK(t *testing.T) {
	for name, server := range sdkServers(t) {
		for prefer, want := range map[wire.Era]wire.Era{wire.Legacy: wire.Legacy, wire.Modern: server.modern} {
			t.Run(name+"/"+prefer.String(), func(t *testing.T) {
				r := newRecorder()
				c := dialEra(t, newServer(t, server.Config), eras(t, prefer), r, want)
				call := modernRequest(t, "tools/call", `"name":"test_tool_with_progress","arguments":{}`)
				raw := strings.Replace(string(call.Raw), `"_meta":{`, `"_meta":{"progressToken":"mine",`, 1)
				if want == wire.Legacy {
					raw = `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"test_tool_with_progress","arguments":{},"_meta":{"progressToken":"mine"}}}`
					if err := c.Notify([]byte(initializedRaw)); err != nil {
						t.Fatal(err)
					}
				}
				l, err := c.List(t.Context(), wire.Tools)
				if err != nil || !l.Has("test_tool_with_progress") {
					t.Fatal(l, err)
				}
				m, err := c.Start(read(t, raw), "tag").Wait(t.Context())
				if err != nil || m.Kind != wire.Result {
					t.Fatal(m, err)
				}
				if told := r.next(t, "notifications/progress"); told.tag != "tag" || string(told.Bytes(told.P.ProgressToken)) != `"mine"` {
					t.Error(string(told.Raw))
				}
			})
		}
	}
}

// TestSubscriptionsOfTheSDK tell of updates, and survive that others are wanted.
func TestSubscriptionsOfTheSDK(t *testing.T) {
	for name, server := range sdkServers(t) {
		if server.modern != wire.Modern {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRecorder()
			c := dialEra(t, newServer(t, server.Config), eras(t, wire.Modern), r, wire.Modern)
			for _, uris := range [][]string{{"test://static-text"}, {"test://static-text", "test://watched-resource"}} {
				if err := c.Listen(uris); err != nil {
					t.Fatal(err)
				}
				eventually(t, func() bool { return c.listening(wire.Tools) })
			}
			if told := r.next(t, "notifications/resources/updated"); told.P.URI != "test://watched-resource" || strings.Contains(string(told.Raw), "subscriptionId") {
				t.Error(string(told.Raw))
			}
		})
	}
}
