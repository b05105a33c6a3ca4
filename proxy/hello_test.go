package proxy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/settings"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// TestInitializeEdits compares both directions of initialize byte by byte.
func TestInitializeEdits(t *testing.T) {
	const client = `{"protocolVersion":"%s","capabilities":{"sampling":{"tools":{}},"elicitation":{},"roots":{"listChanged":true},"tasks":{},"experimental":{"x":{}},"vendor/x":{"y":1e400}},` +
		` "clientInfo":{"name":"n","icons":[1],"version":"1"},"_meta":{"a":1}}`
	const server = `{"zeta":1, "protocolVersion":"2025-06-18","capabilities":{"tools":{},"resources":{"subscribe":true,"listChanged":false},"prompts":{"listChanged":true},` +
		`"logging":{"x":1},"completions":{},"tasks":{"list":{}},"experimental":{"a":1},"vendor/x":{"z":2}},"serverInfo":{"name":"up","title":"U","version":"9","websiteUrl":"u"}%s,"_meta":{"b":1e400}}`
	const hint = `Tools appear and disappear as the work goes on; a refusal says what is allowed now.`
	for _, tt := range []struct {
		name, version, more, policy string
		static, noHint              bool
		sentVersion, sentCaps       string
		instructions                string
	}{
		{"dynamic", "2025-11-25", `,"instructions":"Be \"kind\"."`, "instructions: In order.\n", false, false, "2025-11-25",
			`{"sampling":{"tools":{}},"elicitation":{},"roots":{"listChanged":true}}`, `,"instructions":"Be \"kind\".\n\nIn order.\n\n` + hint + `"`},
		{"no hint", "2024-11-05", `,"instructions":"Be."`, "", false, true, "2024-11-05",
			`{"sampling":{"tools":{}},"elicitation":{},"roots":{"listChanged":true}}`, `,"instructions":"Be."`},
		{"static", "2025-03-26", ``, "upstream_may: [roots]\n", true, false, "2025-03-26", `{"roots":{"listChanged":true}}`, ``},
		{"nothing allowed", "2026-07-28", ``, "upstream_may: []\npassthrough: [vendor/x]\n", true, false, "2025-11-25", `{"vendor/x":{"y":1e400}}`, ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, review+tt.policy, func(r *rig) {
				r.up.hello = fmt.Sprintf(server, tt.more)
				c := r.open()
				answer := c.ask("initialize", fmt.Sprintf(client, tt.version))
				equal(t, "sent", r.up.asked, []string{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + tt.sentVersion +
					`","capabilities":` + tt.sentCaps + `, "clientInfo":{"name":"n","icons":[1],"version":"1"},"_meta":{"a":1}}}`})
				vendor := ""
				if strings.Contains(tt.policy, "vendor") {
					vendor = `,"vendor/x":{"z":2}`
				}
				equal(t, "answer", answer, `{"jsonrpc":"2.0","id":1,"result":{"zeta":1, "protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},`+
					`"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"logging":{"x":1},"completions":{},"tasks":{"list":{}}`+vendor+
					`},"serverInfo":{"name":"up","title":"U","version":"9","websiteUrl":"u"}`+tt.instructions+`,"_meta":{"b":1e400}}}`)
				equal(t, "version", c.s.Version(), "2025-06-18")
			}, with(func(c *proxy.Config) {
				c.NoHint = tt.noHint
				if tt.static {
					c.Surface = surface.Static
				}
			}))
		})
	}
}

// TestInstructionsWhereTheUpstreamHasNone are added at the end.
func TestInstructionsWhereTheUpstreamHasNone(t *testing.T) {
	bubble(t, review+"instructions: In order.\n", func(r *rig) {
		r.up.hello = `{"protocolVersion":"2025-06-18","capabilities":{}, "serverInfo":{} }`
		c := r.open()
		equal(t, "answer", c.ask("initialize", plainHello), `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{}, "serverInfo":{} ,"instructions":"In order."}}`)
	}, with(func(c *proxy.Config) { c.NoHint = true }))
}

// TestInstructionsToWhichNothingIsAdded stay in their bytes, and a capability of
// null offers nothing.
func TestInstructionsToWhichNothingIsAdded(t *testing.T) {
	bubble(t, review, func(r *rig) {
		r.up.hello = `{"protocolVersion":"2025-06-18","capabilities":{"tools":null,"logging":null},"instructions":"\u0042e\/kind"}`
		c := r.open()
		equal(t, "answer", c.ask("initialize", plainHello),
			`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"instructions":"\u0042e\/kind"}}`)
		if answer := c.ask("tools/list", ""); !strings.Contains(answer, "-32601") {
			t.Errorf("got %s", answer)
		}
	}, with(func(c *proxy.Config) { c.NoHint = true }))
}

// TestInitializeThatFails can be tried again.
func TestInitializeThatFails(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.open()
		r.up.refuse = errors.New("no such command")
		if answer := c.ask("initialize", plainHello); !strings.Contains(answer, "no such command") || !strings.Contains(answer, "-32603") {
			t.Errorf("got %s", answer)
		}
		r.up.refuse = &settings.HelloError{Answer: read(t, `{"jsonrpc":"2.0","id":77,"error":{"code":-32602,"message":"old","data":{"supported":["x"]}}}`, wire.FromUpstream)}
		equal(t, "the upstream's own error", c.ask("initialize", plainHello), `{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"old","data":{"supported":["x"]}}}`)
		r.up.refuse = nil
		r.up.hello = strings.Replace(fullHello, "2025-11-25", "2031-01-01", 1)
		if answer := c.ask("initialize", plainHello); !strings.Contains(answer, "2031-01-01") || !strings.Contains(answer, "-32603") {
			t.Errorf("got %s", answer)
		}
		equal(t, "version", c.s.Version(), "")
	})
}

// TestBeforeInitialize nothing is to be had but ping; a newer protocol's discovery
// is told so that its client falls back.
func TestBeforeInitialize(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.open()
		for method, want := range map[string]string{
			"ping": `"result":{}`, "tools/list": "-32600", "tools/call": "-32600", "server/discover": "-32601", "resources/read": "-32600",
		} {
			if answer := c.ask(method, `{"name":"read_file"}`); !strings.Contains(answer, want) {
				t.Errorf("%s: %s", method, answer)
			}
		}
		equal(t, "dialled", len(r.up.asked), 0)
		c.ask("initialize", plainHello)
		if answer := c.ask("initialize", plainHello); !strings.Contains(answer, "-32600") {
			t.Errorf("a second initialize: %s", answer)
		}
		equal(t, "dialled", len(r.up.asked), 1)
	})
}

// TestPipelinedClient sends all at once, as a shell script does: it gets all its
// answers, and its notifications/initialized reaches the upstream.
func TestPipelinedClient(t *testing.T) {
	for i := range 20 {
		bubble(t, review, func(r *rig) {
			slow := make(chan struct{})
			c := r.open()
			hello := c.request("initialize", plainHello)
			if i%2 == 0 { // the connection is coming up already
				synctest.Wait()
			}
			c.notify("notifications/initialized", "")
			list, call, bad := c.request("tools/list", ""), c.call("read_file"), c.call("apply")
			gone := c.call("read_file")
			c.cancel(gone)
			go func() { time.Sleep(time.Second); close(slow) }()
			<-slow
			hello.wait()
			if !strings.Contains(list.wait(), "read_file") {
				t.Error("no list")
			}
			r.up.next().result(ok)
			call.wait()
			refusalOf(t, bad.wait())
			equal(t, "cancelled", gone.wait(), "")
			synctest.Wait()
			equal(t, "told upstream", r.up.conn(0).notified(), []string{`{"jsonrpc":"2.0","method":"notifications/initialized"}`})
			equal(t, "reached", r.up.count("tools/call read_file"), 1)
		}, func(c *proxy.Config, u *server) { c.Dial = slowly(c.Dial, time.Second) })
	}
}

// TestSessionClosedWhileItOpens hangs on nothing.
func TestSessionClosedWhileItOpens(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.open()
		hello, list := c.request("initialize", plainHello), c.request("tools/list", "")
		c.s.Close()
		hello.wait()
		list.wait()
	}, func(c *proxy.Config, u *server) { c.Dial = slowly(c.Dial, time.Hour) })
}
