package proxy_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// leading is a rig by handle in which clients that know both eras are to have sessions.
func leading(protocol bridge.Protocol, mode runs.Mode, log *bytes.Buffer) func(*proxy.Config, *server) {
	return func(c *proxy.Config, up *server) {
		byHandle(nil)(c, up)
		c.Protocol, c.Mode = protocol, mode
		c.Log = hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Info})
	}
}

const sessionsOnly = `"code":-32022,"message":"unsupported protocol version: begin a session with initialize, of revision 2024-11-05 to 2025-11-25; ` +
	`for a client that knows 2026-07-28 alone start fsm-proxy with --protocol both",` +
	`"data":{"supported":["2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2026-07-28"}`

// By handle, server/discover is refused whoever asks, in either mode, and nothing is asked of the upstream for it. All
// other requests of the modern era are served as ever.
func TestDiscoverLeadsToASession(t *testing.T) {
	for _, mode := range []runs.Mode{runs.Enforce, runs.Shadow} {
		t.Run(mode.String(), func(t *testing.T) {
			var log bytes.Buffer
			bubble(t, review, func(r *rig) {
				c := r.modern()
				has(t, c.ask("server/discover", meta("")), sessionsOnly)
				has(t, r.as(observe.Peer{Principal: ann}).ask("server/discover", meta("")), sessionsOnly)
				equal(t, "asked of the upstream", len(r.up.asked), 0)
				if mode == runs.Shadow {
					return
				}
				has(t, c.ask("tools/list", meta("")), `"name":"write_plan"`)
				run := c.begin()
				has(t, c.ask("server/discover", meta("", `"fsm-proxy/run":"`+run+`"`)), sessionsOnly)
				call := c.request("tools/call", of(run, "write_plan"))
				r.up.next().result(`{"content":[]}`)
				has(t, call.wait(), "State is now 'review'")
			}, leading(bridge.ProtocolAuto, mode, &log))
		})
	}
}

// Where the modern era has no handles, or both eras were asked for, server/discover is answered.
func TestDiscoverIsAnsweredWhereNoHandleIsNeeded(t *testing.T) {
	for _, kind := range []runs.Kind{runs.Default, runs.Process, runs.Principal, runs.Handle} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, review, func(r *rig) {
				has(t, r.as(observe.Peer{Principal: ann}).ask("server/discover", meta("")), `"supportedVersions":["2026-07-28","2025-11-25"`)
			}, with(func(c *proxy.Config) {
				c.Keys[wire.Modern] = runs.Key{Kind: kind}
				if kind == runs.Handle {
					c.Protocol = bridge.ProtocolBoth
				}
			}))
		})
	}
}

// The log tells of each client's name once, and of no more than 64 of them, whatever clients call themselves.
func TestLogOfClientsThatAreLed(t *testing.T) {
	var log bytes.Buffer
	bubble(t, review, func(r *rig) {
		c := r.modern()
		ask := func(info string) {
			has(t, c.ask("server/discover", strings.Replace(meta(""), `{"name":"test","version":"1"}`, info, 1)), sessionsOnly)
		}
		for range 3 {
			ask(`{"name":"first\nlevel=error","version":"1"}`)
		}
		for _, odd := range []string{`{}`, `{"name":7}`, `[]`, `"x"`, `null`} {
			ask(odd)
		}
		for i := range 100 {
			ask(fmt.Sprintf(`{"name":"n%d"}`, i))
		}
	}, leading(bridge.ProtocolAuto, runs.Enforce, &log))
	if n := strings.Count(log.String(), "needs --protocol both"); n != 64 {
		t.Errorf("%d lines, not 64", n)
	}
	if n := strings.Count(log.String(), "level=error"); n != 1 || strings.Contains(log.String(), "\nlevel=error") {
		t.Error(log.String())
	}
}
