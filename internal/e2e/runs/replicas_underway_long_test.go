//go:build long && unix

package runs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// offering is an upstream whose lists, subscriptions and completions wait for the gate "said", and whose calls for the gate "done",
// once they have asked.
func offering() mcptest.Server {
	after := func(gate, result string) func(*mcptest.Exchange) {
		return func(e *mcptest.Exchange) { e.Async(func() { e.Gate(gate); e.Result(result) }) }
	}
	return mcptest.Script{
		Tools: map[string]func(*mcptest.Exchange){
			"ok": nil, "once": nil, "elsewhere": nil, "hold": after("done", mcptest.Text("held")),
			"ask": func(e *mcptest.Exchange) {
				e.Async(func() {
					e.Ask("elicitation/create", `{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}`)
					e.Gate("done")
					e.Result(mcptest.Text("told"))
				})
			},
		},
		Lists: map[string]string{"resources/list": `{"resources":[{"uri":"file:///a","name":"a"}]}`},
		Methods: map[string]func(*mcptest.Exchange){
			"prompts/list":        after("said", `{"prompts":[{"name":"p"}]}`),
			"resources/subscribe": after("said", `{}`),
			"completion/complete": after("said", `{"completion":{"values":["x"]}}`),
		},
	}.Server()
}

const offered = `version: 1
name: offered
initial: start
upstream_may: [elicitation]
everywhere: {tools: [ok, hold, ask], resources: ["file:///a"], prompts: [p]}
states:
  start: {tools: {once: after}}
  after: {tools: [elsewhere]}
`

// at is the same client with a connection to one replica: with a session of its own where that is no run's.
func (c *client) at(t *testing.T, h *house) *client {
	t.Helper()
	d := c.twin()
	d.Session, d.web = mcptest.DialWeb(t, h.url)
	d.web.Header = c.web.Header
	switch {
	case c.key.modern():
		d.Modern(mcptest.Modern{})
	case c.key.kind == "session":
		d.web.SetID(c.web.ID())
	default:
		d.Initialize()
	}
	return d
}

// Each kind of request that is under way at an owner which is stopped until others have its run, or comes to it meanwhile, is answered
// once: a call that was sent is unknown, and of all else nobody hears what holds no more, or what the run's owner does not know.
func TestRequestsAtAReplicaThatIsPaused(t *testing.T) {
	database := databases(t)
	each(t, []key{{"modern", "principal"}, {"legacy", "session"}, {"legacy", "principal"}}, func(t *testing.T, k key) {
		upstream, url := mcptest.HTTP(t, offering())
		r := replicate(t, k, offered, database(t), "--store-timeout", "2s", "--cancel-grace", "200ms", "--upstream", url)
		c := r.enter(k, "")
		if x := c.call("ok", ""); x.verdict != "success" {
			t.Fatal(x.raw)
		}
		c.Call("resources/list", "")
		was, others := r.owner()
		d := c.at(t, was)
		type request struct {
			id   int
			what string
		}
		var all []request
		sends := func(method, params string) {
			all = append(all, request{d.Request(method, params), method})
		}
		sends("tools/call", mcptest.ToolParams("hold", "{}"))
		sends("prompts/list", "")
		sends("completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///a"},"argument":{"name":"x","value":"y"}}`)
		if k.modern() {
			for range 6 { // in any order they are called off
				asked, _ := d.Answer(d.asking("ask"))
				sends("tools/call", d.back(t, asked, "ask"))
			}
			upstream.Await(t, 6, "tools/call", "ask")
		} else {
			sends("resources/subscribe", `{"uri":"file:///a"}`)
			upstream.Await(t, 1, "resources/subscribe")
		}
		upstream.Await(t, 1, "tools/call", "hold")
		upstream.Await(t, 1, "prompts/list")
		upstream.Await(t, 1, "completion/complete")
		goOn := was.pauses()
		if !k.modern() {
			sends("resources/subscribe", `{"uri":"file:///none"}`)
		}
		next := c.at(t, others[0])
		mcptest.Await(t, "another one has the run", func() bool { return next.call("once", "").verdict == "success" })
		upstream.Open("said")
		goOn()
		answers := func(id int) []mcptest.Message {
			return slices.DeleteFunc(d.Received(), func(m mcptest.Message) bool { return !m.IsResponse() || string(m.ID) != fmt.Sprint(id) })
		}
		for _, one := range all {
			mcptest.Await(t, one.what+" is answered", func() bool { return len(answers(one.id)) > 0 })
		}
		for _, one := range all {
			m := answers(one.id)[0]
			switch {
			case strings.Contains(m.String(), "cancelled"):
				t.Errorf("%s: %s", one.what, m)
			case one.what == "tools/call" && read(m, nil).verdict != "outcome_unknown":
				t.Errorf("a call that was sent: %s", m)
			case one.what == "prompts/list" && m.Error == nil && !strings.Contains(string(m.Result), `"p"`):
				t.Errorf("a list of nobody's: %s", m)
			case one.what == "resources/subscribe" && k.kind == "session" && m.Error == nil && upstream.Count("resources/subscribe") < 2:
				t.Errorf("nobody knows of the subscription: %s", m)
			}
			if n := len(answers(one.id)); n > 1 {
				t.Errorf("%s was answered %d times", one.what, n)
			}
		}
		if x := next.call("elsewhere", ""); x.verdict != "success" {
			t.Error(x.raw)
		}
		if n := upstream.Count("tools/call", "hold"); n != 1 {
			t.Errorf("hold was sent %d times", n)
		}
		if log := was.process.Log().String(); strings.Contains(log, "panic") {
			t.Error(log)
		}
		r.end()
		verified(t, r.store)
	})
}
