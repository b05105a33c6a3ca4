package runs

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// asksWhilePaying is a policy in which a call that nobody knows the end of leads elsewhere.
const asksWhilePaying = `version: 1
name: asking
initial: start
states:
  start: {tools: {pay: {on_success: paid, on_unknown: lost}, look: }}
  paid: {tools: [look]}
  lost: {tools: [look]}
`

// asker is an upstream with sessions that asks its client in the middle of a call.
func asker(t *testing.T) (*mcptest.Upstream, string) {
	t.Helper()
	return mcptest.HTTP(t, mcptest.Server{Handle: func(e *mcptest.Exchange) {
		switch {
		case e.Method == "initialize":
			e.Result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"raw","version":"1"}}`)
		case e.Method == "tools/list":
			e.Result(`{"tools":[{"name":"pay","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}},{"name":"look","inputSchema":{"type":"object"}}]}`)
		case e.Name == "pay":
			e.Async(func() {
				e.Ask("elicitation/create", `{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}`)
				e.Result(`{"content":[{"type":"text","text":"paid"}],"structuredContent":{}}`)
			})
		case e.Method == "tools/call":
			e.Result(mcptest.Text(e.Name))
		}
	}})
}

// back are the params of a call by which a client answers what the one before has asked it.
func (c *client) back(t *testing.T, asked mcptest.Message, tool string) string {
	t.Helper()
	var result struct {
		InputRequests map[string]json.RawMessage
		RequestState  string
	}
	if err := json.Unmarshal(asked.Result, &result); err != nil || len(result.InputRequests) != 1 {
		t.Fatalf("the client is asked %s", asked)
	}
	var params string
	for id := range result.InputRequests {
		params = fmt.Sprintf(`{"name":%q,"arguments":%s,"requestState":%q,"inputResponses":{%q:{"action":"accept","content":{}}}}`,
			tool, c.arguments(), result.RequestState, id)
	}
	return params
}

func (c *client) arguments() string {
	if c.handle == "" {
		return "{}"
	}
	return fmt.Sprintf(`{"fsm_run":%q}`, c.handle)
}

// A client that was asked something in the middle of a call comes back to a proxy that was started anew: the call goes on
// no more, and its client hears that it may have happened, and what its run has made of that.
func TestAskedBeforeARestart(t *testing.T) {
	each(t, []key{{"modern", "handle"}, {"modern", "principal"}, {"modern", ""}}, func(t *testing.T, k key) {
		for name, kept := range map[string]string{"kept": store(t), "in memory": "memory"} {
			if name == "in memory" && k.kind == "handle" {
				continue // the run is gone, and that is what the client hears
			}
			t.Run(name, func(t *testing.T) {
				upstream, url := asker(t)
				flags := []string{"--annotate", "meta", "--store", kept, "--upstream", url}
				c, again := killable(t, k, flags)
				params := c.back(t, c.Call("tools/call", mcptest.ToolParams("pay", c.arguments())), "pay")
				c = again()
				state, next := "start", "pay"
				if name == "kept" {
					state, next = "lost", "look"
				}
				r := read(c.Call("tools/call", params), nil)
				if r.verdict != "outcome_unknown" || r.state != state {
					t.Errorf("%s in %s\n%s", r.verdict, r.state, r.raw)
				}
				for _, want := range []string{"restarted", "may have happened", "without requestState", "State is now '" + state + "'", "Allowed now: ", next} {
					if !strings.Contains(r.text, want) {
						t.Errorf("%q is not said in %s", want, r.raw)
					}
				}
				if strings.Contains(r.raw, "structuredContent") { // which SDKs would read by the tool's outputSchema
					t.Error(r.raw)
				}
				if n := upstream.Count("tools/call", "pay"); n != 1 {
					t.Errorf("the call was sent %d times", n)
				}
				forged := strings.Replace(params, `"requestState":"fsm1.`, `"requestState":"fsm1.x`, 1)
				if m := c.Call("tools/call", forged); !strings.Contains(m.String(), "-32602") || !strings.Contains(m.String(), "may have happened") {
					t.Error(m)
				}
				if r := c.call("look", ""); r.verdict != "success" || r.state != state {
					t.Error(r.raw)
				}
				if name == "in memory" { // nobody knows better than its client: the run began anew
					again := c.back(t, c.Call("tools/call", mcptest.ToolParams("pay", c.arguments())), "pay")
					if r := read(c.Call("tools/call", again), nil); r.verdict != "success" || r.state != "paid" {
						t.Error(r.raw)
					}
				} else if r := c.call("pay", ""); r.verdict != "invalid_transition" || r.state != "lost" {
					t.Error(r.raw)
				}
			})
		}
	})
}

// killable starts a proxy, at stdio where the key is stdio's, and returns its client, and how the proxy is killed and
// started anew, with the client of that.
func killable(t *testing.T, k key, flags []string) (*client, func() *client) {
	t.Helper()
	if k.kind != "" {
		h := open(t, k, asksWhilePaying, flags...)
		c := h.enter(k, "")
		return c, func() *client { h.again(os.Kill); return h.enter(k, c.run()) }
	}
	policy := mcptest.WritePolicy(t, asksWhilePaying)
	var p *mcptest.Process
	start := func() *client {
		c := &client{key: k}
		c.Session, p = mcptest.Dial(t, append([]string{mcptest.Proxy(t), "run", "--policy", policy, "--run", "mine"}, flags...)...)
		c.Modern(mcptest.Modern{})
		return c
	}
	return start(), func() *client {
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.ExitCode()
		return start()
	}
}
