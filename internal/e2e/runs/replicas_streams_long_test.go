//go:build long && unix

package runs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// busy is an upstream that does more with a call than answer it: it logs where that belongs to no call, tells of progress,
// waits, and asks the client.
func busy() mcptest.Server {
	return mcptest.Script{Tools: map[string]func(*mcptest.Exchange){
		"ok":   nil,
		"once": nil,
		"log": func(e *mcptest.Exchange) {
			e.Announce(mcptest.Notification("notifications/message", `{"level":"error","data":"said by the way"}`))
			e.Result(mcptest.Text("log"))
		},
		"hold": func(e *mcptest.Exchange) {
			e.Progress(1, 2)
			e.Async(func() { e.Gate(e.Argument("who")); e.Progress(2, 2); e.Result(mcptest.Text("held")) })
		},
		"ask": func(e *mcptest.Exchange) {
			e.Async(func() {
				answer := e.Ask("elicitation/create", `{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}`)
				e.Result(mcptest.Text("told " + string(answer.Result)))
			})
		},
	}}.Server()
}

const busyPolicy = `version: 1
name: busy
initial: start
everywhere: {tools: [ok, log, hold, ask]}
states:
  start: {tools: {once: after}}
  after: {}
`

// Streams of both kinds, progress, cancellation and what the upstream asks work at a replica that does not have the run, and
// where each request of one call comes to another.
func TestStreamsAtAnotherReplica(t *testing.T) {
	database := databases(t)
	each(t, []key{{"legacy", "session"}, {"legacy", "principal"}, {"modern", "principal"}, {"modern", "handle"}}, func(t *testing.T, k key) {
		upstream, url := mcptest.HTTP(t, busy())
		r := replicate(t, k, busyPolicy, database(t), "--surface", "dynamic", "--upstream", url)
		r.upstream = upstream
		c := r.enter(k, "")
		if x := c.call("ok", ""); x.verdict != "success" {
			t.Fatal(x.raw)
		}
		_, others := r.owner()

		r.come(others[0])
		next := func(method string) (m mcptest.Message) {
			for m.Method != method {
				m = c.Next()
			}
			return m
		}
		if c.handle != "" {
			c.Modern(mcptest.Modern{Meta: fmt.Sprintf(`"fsm-proxy/run":%q`, c.handle)})
		}
		if k.modern() {
			c.Subscribe(`{"toolsListChanged":true}`)
		} else {
			c.web.Listen()
			c.call("log", "")
			mcptest.Await(t, "what is said by the way comes over the stream", func() bool {
				return slices.ContainsFunc(c.Received(), func(m mcptest.Message) bool { return m.Method == "notifications/message" })
			})
		}

		r.come(others...)
		held := c.begins("hold", `"who":"gate"`)
		next("notifications/progress") // while it goes on
		upstream.Open("gate")
		if x := c.answered(held); x.verdict != "success" {
			t.Error(x.raw)
		}
		id, leave := c.Open("tools/call", mcptest.ToolParams("hold", fmt.Sprintf(`{"who":"nobody","fsm_run":%q}`, c.handle)))
		upstream.Await(t, 2, "tools/call", "hold")
		if k.modern() {
			leave()
		} else {
			c.Notify("notifications/cancelled", fmt.Sprintf(`{"requestId":%d}`, id))
		}
		upstream.Await(t, 1, "notifications/cancelled")

		asked := c.Request("tools/call", mcptest.ToolParams("ask", c.arguments()))
		if k.modern() {
			m, _ := c.Answer(asked)
			asked = c.Request("tools/call", c.back(t, m, "ask"))
		} else {
			c.Send(mcptest.Result(next("elicitation/create").ID, `{"action":"accept","content":{}}`))
		}
		if x := c.answered(asked); x.verdict != "success" || !strings.Contains(x.text, "accept") {
			t.Error(x.raw)
		}

		r.come(r.all...)
		c.changing(t)
		if listed := c.Call("tools/list", ""); strings.Contains(listed.String(), `"once"`) {
			t.Errorf("after: %s", listed)
		}
	})
}
