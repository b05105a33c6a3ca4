package cli

import (
	"encoding/json/v2"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// walker is a client of the modern era that walks through the Crossroads by handle.
type walker struct {
	*mcptest.Session
	t   *testing.T
	run string
}

// startRun begins a run by handle.
func startRun(t *testing.T, s *mcptest.Session) *walker {
	t.Helper()
	var result struct {
		StructuredContent struct {
			Run string `json:"fsm_run"`
		} `json:"structuredContent"`
	}
	answer := s.Tool("fsm_start_run", "{}")
	if err := json.Unmarshal(answer.Result, &result); err != nil || len(result.StructuredContent.Run) < 22 {
		t.Fatalf("starting a run: %s", answer)
	}
	return &walker{Session: s, t: t, run: result.StructuredContent.Run}
}

// does calls a tool of the walker's run, with further arguments, and wants these words in the answer.
func (w *walker) does(tool, arguments string, words ...string) string {
	w.t.Helper()
	answer := w.Tool(tool, `{"fsm_run":"`+w.run+`"`+arguments+"}").String()
	for _, word := range words {
		if !strings.Contains(answer, word) {
			w.t.Errorf("%s: nothing of %q in %s", tool, word, answer)
		}
	}
	return answer
}

// opensDoor pushes the first door, which is stuck, until it is open.
func (w *walker) opensDoor() {
	w.t.Helper()
	for range 5 {
		if strings.Contains(w.does("open_door", "", "State is now"), "State is now 'crossroad'") {
			return
		}
	}
	w.t.Error("the door does not open")
}

var keyID = regexp.MustCompile(`key-[0-9A-Z]+`)

// The Crossroads are walked whole by handle, on two runs of one client in turns: each
// has a world of its own.
func TestCrossroadsByHandle(t *testing.T) {
	t.Parallel()
	url, _ := mcptest.Listen(t, "--policy", filepath.Join(mcptest.Root(), "policies", "crossroads.yaml"), "--", mcptest.Proxy(t), "crossroads")
	s, _ := mcptest.DialWeb(t, url)
	s.Modern(mcptest.Modern{})
	list := s.Call("tools/list", "{}").String()
	contains(t, list, `"tools":[{"name":"fsm_start_run"`)
	contains(t, list, `"fsm_run":{"type":"string"`)
	contains(t, s.Tool("open_door", "{}").String(), "run_not_found")

	one, two := startRun(t, s), startRun(t, s)
	one.does("open_door_with_key", "", "invalid_transition", "in state 'entry'")
	one.opensDoor()
	two.does("press_button", "", "invalid_transition", "in state 'entry'")
	one.does("press_button", "", "Allowed now: choose_left_path, choose_right_path, press_button.")
	two.opensDoor()
	one.does("choose_left_path", "", "State is now 'door_left'")
	two.does("choose_right_path", "", `"isError":true`, "crossroad")
	key := keyID.FindString(one.does("pick_up_key", "", "door_left"))
	one.does("open_door_with_key", `,"key_id":"wrong"`, `"isError":true`, "State is now 'rollback_left'")
	one.does("open_door_with_key", `,"key_id":"`+key+`"`, "The run was completed and begins again. State is now 'entry'")
	two.does("press_button", "", "crossroad")
	two.does("choose_right_path", "", "State is now 'door_right'")

	one.does("fsm_end_run", "", `"ended":true`)
	one.does("open_door", "", "run_not_found")
	two.does("go_back", "", "invalid_transition", "in state 'door_right'")
}
