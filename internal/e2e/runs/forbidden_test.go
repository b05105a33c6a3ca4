package runs

import (
	"strings"
	"testing"
)

// What is not allowed is not allowed by any key, and reaches nobody: neither what a later state binds, nor what none
// does, nor what was allowed before.
func TestForbiddenUnderEveryKey(t *testing.T) {
	each(t, keys, func(t *testing.T, k key) {
		h := counted(t, k, steps, "--annotate", "meta")
		c := h.enter(k, "")
		for tool, want := range map[string]string{"elsewhere": "invalid_transition", "hidden": "unknown_action", "Once": "unknown_action"} {
			if r := c.call(tool, ""); r.verdict != want || r.state != "start" {
				t.Errorf("%s is answered %s", tool, r.raw)
			}
		}
		if r := c.call("once", ""); r.verdict != "success" {
			t.Errorf("what is allowed is answered %s", r.raw)
		}
		for _, tool := range []string{"once", "hold"} {
			if r := c.call(tool, ""); r.verdict != "invalid_transition" || r.state != "after" {
				t.Errorf("%s once more is answered %s", tool, r.raw)
			}
		}
		for _, tool := range []string{"hidden", "Once", "hold", "elsewhere"} {
			if n := h.upstream.Count("tools/call", tool); n != 0 {
				t.Errorf("%d calls of %s reached the upstream", n, tool)
			}
		}
		if n := h.upstream.Count("tools/call", "once"); n != 1 {
			t.Errorf("%d calls of once reached the upstream", n)
		}
		for _, m := range h.upstream.Received() {
			if strings.Contains(m.String(), "fsm_run") || c.handle != "" && strings.Contains(m.String(), c.handle) {
				t.Errorf("the upstream got the handle: %s", m)
			}
		}
	})
}
