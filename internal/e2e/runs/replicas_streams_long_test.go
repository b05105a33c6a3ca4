//go:build long && unix

package runs

import (
	"fmt"
	"os"
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
		c, _, others := r.entered(k)

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

// A call that was passed on, and has told of progress or asked its client, is answered once when its owner is gone, or is stopped for
// longer than its lease; so is a subscription stream.
func TestStreamsWhoseOwnerIsGone(t *testing.T) {
	database := databases(t)
	for name, fault := range map[string]func(owner *house){
		"killed": func(owner *house) { owner.ends(os.Kill) },
		"paused": func(owner *house) { t.Cleanup(owner.pauses()) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, []key{{"legacy", "session"}, {"legacy", "principal"}, {"modern", "principal"}, {"modern", "handle"}}, func(t *testing.T, k key) {
				upstream, url := mcptest.HTTP(t, busy())
				r := replicate(t, k, busyPolicy, database(t), "--surface", "dynamic", "--upstream", url)
				r.upstream = upstream
				c, owner, others := r.entered(k)
				r.come(others...)
				if c.handle != "" {
					c.Modern(mcptest.Modern{Meta: fmt.Sprintf(`"fsm-proxy/run":%q`, c.handle)})
				}
				begun := func(method string) {
					mcptest.Await(t, method+" comes", func() bool {
						return slices.ContainsFunc(c.Received(), func(m mcptest.Message) bool { return m.Method == method })
					})
				}
				sent := map[string]int{"hold": c.begins("hold", `"who":"nobody"`)}
				begun("notifications/progress")
				if k.modern() {
					sent["subscriptions/listen"] = c.Request("subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
					begun("notifications/subscriptions/acknowledged")
				} else {
					sent["ask"] = c.begins("ask", "")
					begun("elicitation/create")
				}
				fault(owner)
				for what, id := range sent {
					var got []mcptest.Message
					mcptest.Await(t, what+" is answered", func() bool {
						got = slices.DeleteFunc(c.Received(), func(m mcptest.Message) bool { return !m.IsResponse() || string(m.ID) != fmt.Sprint(id) })
						return len(got) > 0
					})
					want := "outcome_unknown"
					if what == "subscriptions/listen" {
						want = "try again"
					}
					if len(got) > 1 || !strings.Contains(got[0].String(), want) {
						t.Errorf("%s: %v", what, got)
					}
				}
				if k.kind == "principal" && !k.modern() { // whose session has gone with its process
					c = r.enter(k, "")
				}
				if x := c.call("ok", ""); x.verdict != "success" {
					t.Error(x.raw)
				}
				if n := upstream.Count("tools/call", "hold"); n != 1 {
					t.Errorf("hold was sent %d times", n)
				}
			})
		})
	}
}
