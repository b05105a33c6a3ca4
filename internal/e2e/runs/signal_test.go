package runs

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// signalling has signals of the agent's and one of an operator's.
const signalling = `version: 1
name: signals
initial: idle
everywhere: {tools: [ok]}
states:
  idle: {tools: {once: waiting}}
  waiting:
    signals:
      again: stay
      give_up: {to: idle, description: Stop here.}
      released: {to: idle, from: operator}
`

// signal sends one, by name.
func (c *client) signal(name string) reply { return c.call("fsm_signal", `"name":"`+name+`"`) }

// A signal is listed, steps the run, and is refused the same way over each transport and in each era. Nothing
// of it reaches the upstream.
func TestSignalsOverEachTransportInEachEra(t *testing.T) {
	t.Parallel()
	web := func(k key) func(*testing.T) (*client, *mcptest.Upstream) {
		return func(t *testing.T) (*client, *mcptest.Upstream) {
			h := counted(t, k, signalling)
			return h.enter(k, ""), h.upstream
		}
	}
	pipe := func(k key) func(*testing.T) (*client, *mcptest.Upstream) {
		return func(t *testing.T) (*client, *mcptest.Upstream) {
			upstream, url := mcptest.HTTP(t, server())
			c := &client{key: k}
			c.Session, _ = mcptest.Dial(t, mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, signalling), "--upstream", url)
			if k.modern() {
				c.Modern(mcptest.Modern{})
			} else {
				c.Initialize()
			}
			return c, upstream
		}
	}
	for name, open := range map[string]func(*testing.T) (*client, *mcptest.Upstream){
		"legacy over stdio":          pipe(key{era: "legacy"}),
		"modern over stdio":          pipe(key{era: "modern"}),
		"legacy over HTTP":           web(key{"legacy", "session"}),
		"modern by handle over HTTP": web(key{"modern", "handle"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, upstream := open(t)
			c.signals(t)
			if n := upstream.Count("tools/call", "fsm_signal"); n != 0 {
				t.Errorf("%d signals have reached the upstream", n)
			}
		})
	}
}

// signals plays what the test above says.
func (c *client) signals(t *testing.T) {
	t.Helper()
	listed := func(want bool) {
		t.Helper()
		list := c.Call("tools/list", "").String()
		if strings.Contains(list, `"enum":["again","give_up"]`) != want || strings.Contains(list, `"name":"fsm_signal"`) != want || strings.Contains(list, "released") {
			t.Errorf("listed: %s", list)
		}
	}
	refused := func(r reply, code, state string) {
		t.Helper()
		if r.verdict != code || r.state != state || r.changed || !strings.Contains(r.raw, `"kind":"signal"`) {
			t.Errorf("in %s, want %s: %+v", state, code, r)
		}
	}
	dynamic := !c.key.modern()
	listed(!dynamic)
	if r := c.call("once", ""); r.verdict != "success" || r.changed != dynamic {
		t.Fatalf("%+v", r)
	}
	listed(true)
	if r := c.signal("again"); r.verdict != "success" || r.changed || !strings.Contains(r.raw, `"structuredContent":{"state":"waiting"`) {
		t.Errorf("%+v", r)
	}
	refused(c.signal("released"), "unknown_action", "waiting")
	if r := c.call("fsm_signal", `"name":"again","name":"give_up"`); !strings.Contains(r.raw, "-32600") {
		t.Errorf("two names: %s", r.raw)
	}
	if r := c.signal("give_up"); r.verdict != "success" || r.changed != dynamic || !strings.Contains(r.raw, `"structuredContent":{"state":"idle"`) {
		t.Errorf("%+v", r)
	}
	listed(!dynamic)
	refused(c.signal("give_up"), "invalid_transition", "idle")
	if r := c.call("once", ""); r.verdict != "success" {
		t.Errorf("the signal has not led back: %s", r.raw)
	}
}
