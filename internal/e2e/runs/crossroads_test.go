package runs

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// step is one call of the walk, and what must come of it.
type step struct {
	tool, arguments, verdict, state string
	changed                         bool // list_changed comes before the answer, where the lists change
}

const rightKey = `"key_id":"brass"`

// walk is the whole way through Crossroads, up to the last door.
var walk = []step{
	{"choose_left_path", "", "invalid_transition", "entry", false},
	{"open_door", "", "error", "entry", false},
	{"open_door", "", "success", "crossroad", true},
	{"choose_left_path", "", "error", "crossroad", false},
	{"press_button", "", "success", "crossroad", false},
	{"choose_left_path", "", "success", "door_left", true},
	{"open_door_with_key", `"key_id":"rusty-nail"`, "error", "rollback_left", true},
	{"pick_up_key", "", "invalid_transition", "rollback_left", false},
	{"go_back", "", "success", "crossroad", true},
	{"choose_left_path", "", "success", "door_left", true},
	{"pick_up_key", "", "success", "door_left", false},
}

// lastDoor completes the run, and the next has begun.
var lastDoor = []step{
	{"open_door_with_key", rightKey, "success", "entry", true},
	{"pick_up_key", "", "invalid_transition", "entry", false},
}

// crossroads is the policy as it is shipped, with another on_complete.
func crossroads(t *testing.T, onComplete string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(mcptest.Root(), "policies", "crossroads.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	policy := strings.Replace(string(text), "on_complete: restart\n", onComplete, 1)
	if policy == string(text) && onComplete != restarts {
		t.Fatal("the policy says no on_complete: restart")
	}
	return policy
}

const (
	restarts = "on_complete: restart\n"
	stops    = "on_complete: stop\n"
)

func wrapped(t *testing.T) []string {
	return []string{"--annotate", "meta", "--", mcptest.Proxy(t), "crossroads", "--key", "brass"}
}

// play takes steps. Lists change in the legacy era alone: in the modern one they
// must not, as a side effect of a call.
func (c *client) play(t *testing.T, steps []step) {
	t.Helper()
	for i, s := range steps {
		if r := c.call(s.tool, s.arguments); !c.went(s, r) {
			t.Fatalf("step %d, %s %s: %s in %s, list_changed %v; want %+v\n%s", i+1, s.tool, s.arguments, r.verdict, r.state, r.changed, s, r.raw)
		}
	}
}

// went reports whether this must come of a step.
func (c *client) went(s step, r reply) bool {
	return r.verdict == s.verdict && r.state == s.state && r.changed == (s.changed && !c.key.modern())
}

// Crossroads is played whole by each key, and again from the entry.
func TestCrossroads(t *testing.T) {
	each(t, keys, func(t *testing.T, k key) {
		h := open(t, k, crossroads(t, restarts), wrapped(t)...)
		c := h.enter(k, "")
		c.play(t, walk)
		c.play(t, lastDoor)
		c.play(t, []step{{"open_door", "", "success", "crossroad", true}})
	})
}

// Over stdio there is one run, in either era.
func TestCrossroadsOverStdio(t *testing.T) {
	each(t, []key{{"legacy", ""}, {"modern", ""}}, func(t *testing.T, k key) {
		c := &client{key: k}
		c.Session, _ = mcptest.Dial(t, append([]string{mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, crossroads(t, restarts))}, wrapped(t)...)...)
		if k.modern() {
			c.Modern(mcptest.Modern{})
		} else {
			c.Initialize()
		}
		c.play(t, walk)
		c.play(t, lastDoor)
	})
}

// renewals say how a run that stays complete is followed by another, and what the
// refusal says of that.
var renewals = map[string]struct {
	hint  string
	renew func(t *testing.T, h *house, c *client) *client
}{
	"process":   {"an operator restarts this one", restarted},
	"session":   {"with a new session", entered},
	"principal": {"with the tool fsm_start_run", startedAgain},
	byHeader:    {"with the tool fsm_start_run", startedAgain},
	"path":      {"at a new URL", entered},
	"handle":    {"with the tool fsm_start_run", entered},
}

func entered(_ *testing.T, h *house, c *client) *client { return h.enter(c.key, "") }

func restarted(t *testing.T, h *house, c *client) *client {
	t.Helper()
	for _, r := range h.known() {
		var answer struct{ ID string }
		h.operator(http.MethodPost, "/v1/runs/"+r.ID+"/reset", &answer)
	}
	return c
}

func startedAgain(t *testing.T, h *house, c *client) *client {
	t.Helper()
	if listed := c.Call("tools/list", ""); !strings.Contains(listed.String(), `"fsm_start_run"`) {
		t.Errorf("the tool is not listed: %s", listed)
	}
	if r := c.call("fsm_start_run", ""); r.verdict != "success" {
		t.Errorf("starting a new run: %s", r.raw)
	}
	return c
}

// What follows completion is the same under each key where the policy does not say it:
// the run begins anew.
func TestRunsBeginAnewByDefault(t *testing.T) {
	each(t, keys, func(t *testing.T, k key) {
		h := open(t, k, crossroads(t, ""), wrapped(t)...)
		c := h.enter(k, "")
		c.play(t, walk)
		c.play(t, lastDoor)
	})
}

// A run that stays complete allows nothing more, and another begins as its key has it.
func TestCompleteRuns(t *testing.T) {
	each(t, keys, func(t *testing.T, k key) {
		h := open(t, k, crossroads(t, stops), append([]string{"--admin-tokens", tokensOf(t, "olga")}, wrapped(t)...)...)
		c := h.enter(k, "")
		c.play(t, walk)
		if r := c.call("open_door_with_key", rightKey); r.verdict != "success" {
			t.Fatalf("the last door: %s", r.raw)
		}
		for _, tool := range []string{"open_door", "pick_up_key"} {
			if r := c.call(tool, ""); r.verdict != "run_complete" || !strings.Contains(r.text, renewals[k.kind].hint) {
				t.Errorf("%s after the run's end: %s", tool, r.raw)
			}
		}
		next := renewals[k.kind].renew(t, h, c)
		if r := next.call("go_back", ""); r.verdict != "invalid_transition" || r.state != "entry" {
			t.Errorf("the next run: %s", r.raw)
		}
		next.play(t, walk[:1])
	})
}
