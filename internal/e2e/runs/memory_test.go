package runs

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// remembering has registers, guards, outcomes, limits and a clock.
const remembering = `version: 1
name: remembers
initial: idle
registers: {seen: {set: text, max: 2}, last: text}
states:
  idle:
    tools:
      ok: {set: {seen: {add: args.path}}}
      once:
        when: args.path in registers.seen
        because: Look at it first.
        outcomes: {done: result.text == "once"}
        on_done: {to: moved, set: {last: result.text}}
        on_any: stay
      elsewhere: {at_most: 2, when: has(registers.last)}
  moved:
    after: {1s: idle}
    tools: {hold: {when: registers.last == "once", on_any: stay}}
`

// What a run remembers is set, read and told of alike over each transport and in each era.
func TestMemoryOverEachTransportInEachEra(t *testing.T) {
	t.Parallel()
	web := func(k key) func(*testing.T) *client {
		return func(t *testing.T) *client { return counted(t, k, remembering).enter(k, "") }
	}
	pipe := func(k key) func(*testing.T) *client {
		return func(t *testing.T) *client {
			_, url := mcptest.HTTP(t, server())
			c := &client{key: k}
			c.Session, _ = mcptest.Dial(t, mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, remembering), "--upstream", url)
			if k.modern() {
				c.Modern(mcptest.Modern{})
			} else {
				c.Initialize()
			}
			return c
		}
	}
	for name, open := range map[string]func(*testing.T) *client{
		"legacy over stdio":          pipe(key{era: "legacy"}),
		"modern over stdio":          pipe(key{era: "modern"}),
		"legacy over HTTP":           web(key{"legacy", "session"}),
		"modern by handle over HTTP": web(key{"modern", "handle"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open(t).remembers(t)
		})
	}
}

// remembers plays what the test above says.
func (c *client) remembers(t *testing.T) {
	t.Helper()
	dynamic := !c.key.modern()
	listed := func(name string, want bool) {
		t.Helper()
		if list := c.Call("tools/list", "").String(); strings.Contains(list, `"name":"`+name+`"`) != want {
			t.Errorf("%s is listed: %v, in %s", name, !want, list)
		}
	}
	verdict := func(want, tool, arguments string) reply {
		t.Helper()
		r := c.call(tool, arguments)
		if r.verdict != want {
			t.Errorf("%s %s: %+v, want %s", tool, arguments, r, want)
		}
		return r
	}
	listed("elsewhere", !dynamic) // lists that do not follow the state do not follow what it remembers
	if r := verdict("guard_failed", "once", `"path":"a"`); !strings.Contains(r.raw, "Look at it first.") || strings.Contains(r.raw, "registers") {
		t.Errorf("refused: %s", r.raw)
	}
	verdict("success", "ok", `"path":"a"`)
	verdict("guard_failed", "once", `"path":["a"]`)
	verdict("success", "ok", `"path":"b"`)
	verdict("limit_reached", "ok", `"path":"c"`)
	verdict("success", "ok", `"path":"a"`)
	if r := c.call("once", `"path":"a","Path":"b"`); !strings.Contains(r.raw, "-32600") {
		t.Errorf("two that read alike: %s", r.raw)
	}
	if r := verdict("success", "once", `"path":"b"`); r.changed != dynamic {
		t.Errorf("told of a step: %+v", r)
	}
	if c.web == nil && dynamic {
		for c.Next().Method != "notifications/tools/list_changed" { // of the clock
		}
	} else {
		for c.call("ok", `"path":"a"`).verdict != "success" { // until the clock has gone off
		}
	}
	listed("elsewhere", true)
	verdict("success", "elsewhere", "")
	verdict("success", "elsewhere", "")
	verdict("limit_reached", "elsewhere", "")
}
