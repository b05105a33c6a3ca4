package runs

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Two clients on one run share its turn, and both see where it goes.
func TestTwoClientsOnOneRun(t *testing.T) {
	each(t, append(lasting, those("process", "handle")...), func(t *testing.T, k key) {
		h := counted(t, k, steps)
		a := h.enter(k, "")
		b := h.enter(k, a.run())
		first := a.asking("hold")
		h.upstream.Await(t, 1, "tools/call", "hold")
		second := b.asking("once")
		if r := b.call("ok", ""); r.verdict != "success" {
			t.Errorf("a call that stays waits for the turn: %s", r.raw)
		}
		h.upstream.Open("hold")
		if r := a.answered(first); r.verdict != "success" {
			t.Errorf("the first: %s", r.raw)
		}
		if r := b.answered(second); r.verdict != "invalid_transition" || r.state != "after" {
			t.Errorf("the second: %s", r.raw)
		}
		if n := h.upstream.Count("tools/call", "once"); n != 0 {
			t.Errorf("once has reached the upstream %d times", n)
		}
	})
}

// asking sends a call, and returns its id.
func (c *client) asking(tool string) int {
	arguments := "{}"
	if c.handle != "" {
		arguments = `{"fsm_run":"` + c.handle + `"}`
	}
	return c.Request("tools/call", mcptest.ToolParams(tool, arguments))
}

func (c *client) answered(id int) reply {
	answer, before := c.Answer(id)
	return read(answer, before)
}

// Both clients of one run get list_changed: who has called before the answer, the other where it listens. In the modern
// era that is so where lists were asked to be dynamic.
func TestListChangedToBoth(t *testing.T) {
	each(t, append(lasting, key{"legacy", "process"}, key{"modern", "process"}), func(t *testing.T, k key) {
		h := counted(t, k, steps, "--surface", "dynamic")
		a := h.enter(k, "")
		b := h.enter(k, a.run())
		if k.modern() {
			b.Subscribe(`{"toolsListChanged":true}`)
			a.Subscribe(`{"toolsListChanged":true}`)
		} else {
			b.web.Listen()
		}
		if listed := b.Call("tools/list", ""); !strings.Contains(listed.String(), `"once"`) {
			t.Errorf("before: %s", listed)
		}
		a.changing(t)
		b.hears()
		if listed := b.Call("tools/list", ""); strings.Contains(listed.String(), `"once"`) {
			t.Errorf("after: %s", listed)
		}
	})
}

// A client that listens before its run has begun is told of what then happens in it.
func TestListenFirst(t *testing.T) {
	each(t, []key{{"modern", "principal"}, {"modern", byHeader}}, func(t *testing.T, k key) {
		h := counted(t, k, steps, "--surface", "dynamic")
		c := h.enter(k, "")
		c.Subscribe(`{"toolsListChanged":true}`)
		c.changing(t)
	})
}

// changing takes a step, and is told that its lists have changed: in the legacy era before the answer. In the modern
// one the two come over connections of their own.
func (c *client) changing(t *testing.T) {
	t.Helper()
	r := c.call("once", "")
	if r.verdict != "success" || !r.changed && !c.key.modern() {
		t.Errorf("once, list_changed %v: %s", r.changed, r.raw)
	}
	if !r.changed {
		c.hears()
	}
}

// hears waits until the client is told that the tools have changed.
func (c *client) hears() {
	for c.Next().Method != "notifications/tools/list_changed" {
	}
}

// One client on two runs at the same time: neither knows of the other.
func TestOneClientOnTwoRuns(t *testing.T) {
	each(t, those("handle", "path", byHeader), func(t *testing.T, k key) {
		h := counted(t, k, steps)
		a, b := h.enter(k, ""), h.enter(k, "")
		if k.kind == "handle" { // over one and the same connection
			handle := b.handle
			b = a.twin()
			b.handle = handle
		}
		if k.kind == byHeader {
			b = h.who(k, "")
			b.web.Header.Set(gatewayHeader, "another run")
			if !k.modern() {
				b.Initialize()
			}
		}
		held := a.asking("hold")
		h.upstream.Await(t, 1, "tools/call", "hold")
		h.taken(b)
		h.upstream.Open("hold")
		if r := a.answered(held); r.verdict != "success" {
			t.Errorf("the other run: %s", r.raw)
		}
		for _, c := range []*client{a, b} {
			if r := c.call("once", ""); r.state != "after" {
				t.Errorf("after both: %s", r.raw)
			}
		}
		if n := h.upstream.Count("tools/call", "once"); n != 1 {
			t.Errorf("once has reached the upstream %d times", n)
		}
	})
}

// twin is the same client with what else it knows.
func (c *client) twin() *client { other := *c; return &other }

// Clients of one run have ids of their own, though they are the same: each gets its own answer, and cancels its own.
func TestSameIDOnOneRun(t *testing.T) {
	each(t, append(lasting, those("process", "handle")...), func(t *testing.T, k key) {
		h := counted(t, k, steps)
		a := h.enter(k, "")
		b := h.enter(k, a.run())
		ask := func(c *client, who string) (leave func()) {
			arguments := `{"who":"` + who + `"}`
			if c.handle != "" {
				arguments = `{"who":"` + who + `","fsm_run":"` + c.handle + `"}`
			}
			params := mcptest.ToolParams("hold_open", arguments)
			if k.modern() {
				params = mcptest.Modern{}.Params(params)
			}
			c.Send(mcptest.Request(77, "tools/call", params))
			return func() {}
		}
		ask(a, "a")
		h.upstream.Await(t, 1, "tools/call", "hold_open")
		ask(b, "b")
		h.upstream.Await(t, 2, "tools/call", "hold_open")
		third := h.enter(k, a.run())
		if !k.modern() {
			third.Notify("notifications/cancelled", `{"requestId":77}`)
		} else if r := third.web.Post(t.Context(), mcptest.Notification("notifications/cancelled", mcptest.Modern{}.Params(`{"requestId":77}`))); r.Status >= 500 {
			t.Errorf("a notification is answered %d", r.Status)
		}
		if r := third.call("ok", ""); r.verdict != "success" {
			t.Errorf("ok: %s", r.raw)
		}
		h.upstream.Open("hold_open")
		for who, c := range map[string]*client{"a": a, "b": b} {
			if r := c.answered(77); !strings.HasPrefix(r.text, who) {
				t.Errorf("%s is answered %s", who, r.raw)
			}
		}
		if n := h.upstream.Count("notifications/cancelled"); n != 0 {
			t.Errorf("%d calls were cancelled", n)
		}
	})
}
