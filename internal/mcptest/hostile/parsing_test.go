package hostile

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Messages that two parsers can read in two ways are refused before anything is decided, and nothing of them
// reaches the upstream.
func TestAmbiguousMessages(t *testing.T) {
	lines := map[string]string{
		"duplicate name":              `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok","name":"hidden"}}`,
		"duplicate method":            `{"jsonrpc":"2.0","id":50,"method":"ping","method":"tools/call","params":{"name":"ok"}}`,
		"duplicate params":            `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok"},"params":{"name":"hidden"}}`,
		"duplicate id":                `{"jsonrpc":"2.0","id":50,"id":51,"method":"tools/call","params":{"name":"ok"}}`,
		"duplicate by escape":         `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok","n\u0061me":"hidden"}}`,
		"duplicate deep in arguments": `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok","arguments":{"a":{"b":1,"b":2}}}}`,
		"Name beside name":            `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok","Name":"hidden"}}`,
		"NAME alone":                  `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"NAME":"hidden","arguments":{}}}`,
		"Method beside method":        `{"jsonrpc":"2.0","id":50,"method":"ping","Method":"tools/call","params":{"name":"ok"}}`,
		"long s in params":            `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok"},"paramſ":{"name":"hidden"}}`,
		"escaped long s in params":    `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok"},"param\u017f":{"name":"hidden"}}`,
		"Kelvin sign in the token":    "{\"jsonrpc\":\"2.0\",\"id\":50,\"method\":\"tools/call\",\"params\":{\"name\":\"ok\",\"_meta\":{\"progressToken\":1,\"progressTo\u212aen\":2}}}",
		"lone surrogate":              `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok\ud800"}}`,
		"invalid UTF-8":               "{\"jsonrpc\":\"2.0\",\"id\":50,\"method\":\"tools/call\",\"params\":{\"name\":\"ok\xff\"}}",
		"NUL in the name":             `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok\u0000hidden"}}`,
		"BOM":                         "\ufeff" + `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok"}}`,
		"trailing data":               `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok"}} {"jsonrpc":"2.0","id":51,"method":"tools/call","params":{"name":"hidden"}}`,
		"trailing comma":              `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok",}}`,
		"id 1e400":                    `{"jsonrpc":"2.0","id":1e400,"method":"tools/call","params":{"name":"ok"}}`,
		"too deep":                    `{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok","arguments":{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}}}`,
		"no JSON":                     `tools/call hidden`,
		"no object":                   `"tools/call"`,
		"batch":                       `[{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok"}},{"jsonrpc":"2.0","id":51,"method":"tools/call","params":{"name":"hidden"}}]`,
	}
	framings(t, func(t *testing.T, r *rig) {
		for name, line := range lines {
			before := r.calls()
			r.Send(line)
			if answer := r.Next(); !refused(answer) {
				t.Errorf("%s: answered %s", name, answer)
			}
			if reached := r.calls() - before; reached != 0 {
				t.Errorf("%s: %d calls reached the upstream", name, reached)
			}
		}
		r.lives(t)
		if n := r.upstream.Count("tools/call", "hidden"); n != 0 {
			t.Errorf("the hidden tool was called %d times", n)
		}
	})
}

func TestHugeMessage(t *testing.T) {
	huge := mcptest.Request(50, "tools/call", mcptest.ToolParams("ok", `{"a":"`+strings.Repeat("x", 5<<20)+`"}`))
	framings(t, func(t *testing.T, r *rig) {
		if r.web != nil {
			// The server may hang up while the client still writes; then there is no status to read.
			if answer := r.web.Post(t.Context(), huge); answer.Err == nil && answer.Status != http.StatusRequestEntityTooLarge {
				t.Errorf("answered %d %.200s", answer.Status, answer.Body)
			}
		} else {
			r.Send(huge)
			if answer := r.Next(); !refused(answer) {
				t.Errorf("answered %.200s", answer)
			}
		}
		r.lives(t)
		if n := r.calls(); n != 1 {
			t.Errorf("%d calls reached the upstream", n)
		}
	})
}

// An id comes back as it was sent, and 1 and "1" are two.
func TestIDsComeBackAsSent(t *testing.T) {
	framings(t, func(t *testing.T, r *rig) {
		for _, id := range []string{`9007199254740993`, `"9007199254740993"`, `"1"`, `1001`, `"\u00fc"`, `-7`} {
			r.Send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"ok"}}`)
			if answer := r.Next(); string(answer.ID) != id || refused(answer) {
				t.Errorf("id %s is answered %s", id, answer)
			}
		}
	})
}

func TestNumberAndStringIDsAreTwo(t *testing.T) {
	framings(t, func(t *testing.T, r *rig) {
		r.Send(`{"jsonrpc":"2.0","id":"77","method":"tools/call","params":{"name":"wrong_id"}}`)
		r.upstream.Await(t, 1, "tools/call", "wrong_id")
		r.Send(`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"ok"}}`)
		if answer := r.Next(); string(answer.ID) != "77" || refused(answer) {
			t.Errorf("the number is answered %s", answer)
		}
		r.upstream.Open("right")
		if answer := r.Next(); string(answer.ID) != `"77"` || refused(answer) {
			t.Errorf("the string is answered %s", answer)
		}
	})
}

// An id that is in flight cannot be used again.
func TestIDInFlightIsRefused(t *testing.T) {
	framings(t, func(t *testing.T, r *rig) {
		r.Send(`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"wrong_id"}}`)
		r.upstream.Await(t, 1, "tools/call", "wrong_id")
		r.Send(`{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"ok"}}`)
		if answer := r.Next(); !strings.Contains(string(answer.Error), "-32600") {
			t.Errorf("the second is answered %s", answer)
		}
		if n := r.upstream.Count("tools/call", "ok"); n != 0 {
			t.Errorf("%d calls reached the upstream", n)
		}
		r.upstream.Open("right")
		if answer := r.Next(); string(answer.ID) != "77" || refused(answer) {
			t.Errorf("the first is answered %s", answer)
		}
	})
}

// A batch of 2025-03-26 that hides a denied call: each member is decided by itself.
func TestBatchHidesNothing(t *testing.T) {
	const initialize = `{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"old","version":"1"}}`
	u := mcptest.Stdio(t, "wrong")
	s, _ := mcptest.Dial(t, mcptest.RunStdio(t, mcptest.WritePolicy(t, policy), u.Command()...)...)
	s.InitializeAs(initialize)
	s.Send(`[` + mcptest.Request(50, "tools/call", mcptest.ToolParams("ok", "")) + `,` +
		mcptest.Request(51, "tools/call", mcptest.ToolParams("hidden", "")) + `]`)
	answer := s.Next().String()
	if !strings.HasPrefix(answer, "[") || !strings.Contains(answer, "unknown_action") || !strings.Contains(answer, `"text":"ok"`) {
		t.Errorf("answered %s", answer)
	}
	if n := u.Count("tools/call", "hidden"); n != 0 {
		t.Errorf("the hidden tool was called %d times", n)
	}
}
