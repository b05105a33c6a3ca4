package main

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// What a server lists and no state binds is one line, with each name; for
// programs each name is a finding.
func TestCheckTellsTogetherWhatIsUnbound(t *testing.T) {
	p := write(t, "door.yaml", "version: 1\ninitial: a\nstates:\n  a:\n    tools: [open_door, press_button]\n")
	server := []string{"--", mcptest.Proxy(t), "crossroads"}
	r := command(t, nil, append([]string{"check", p}, server...)...)
	want := p + ": note: no state binds 5 of the upstream's tools: " +
		"choose_left_path, choose_right_path, go_back, open_door_with_key, pick_up_key\n" + p + ": ok, 1 state\n"
	if r.stdout != want {
		t.Errorf("got\n%s\nwant\n%s", r.stdout, want)
	}
	r = command(t, nil, append([]string{"check", "--format", "json", p}, server...)...)
	if n := strings.Count(r.stdout, `"code": "unbound"`); n != 5 {
		t.Errorf("%d findings, want 5:\n%s", n, r.stdout)
	}
}
