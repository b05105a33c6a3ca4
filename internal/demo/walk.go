package demo

import (
	"fmt"
	"strings"
)

// verdict is what became of a call.
type verdict uint8

const (
	refused   verdict = iota // by the proxy: the server never saw it
	failed                   // the server said that it did not work
	succeeded                // the server said that it worked
)

func (v verdict) String() string {
	switch v {
	case refused:
		return "refused"
	case failed:
		return "error"
	case succeeded:
		return "success"
	}
	return "invalid"
}

// step is one call of the walk, and what must come of it.
type step struct {
	tool    string
	key     string // the key_id to send; rightKey for the one that was picked up
	verdict verdict
	state   string // after the call
	changed bool   // list_changed must arrive before the answer
}

// rightKey stands for the key that the walk has picked up.
const rightKey = "*"

// walk is the Crossroads walk.
var walk = []step{
	{tool: "choose_left_path", verdict: refused, state: "entry"},
	{tool: "open_door", verdict: failed, state: "entry"},
	{tool: "open_door", verdict: succeeded, state: "crossroad", changed: true},
	{tool: "choose_left_path", verdict: failed, state: "crossroad"},
	{tool: "press_button", verdict: succeeded, state: "crossroad"},
	{tool: "choose_left_path", verdict: succeeded, state: "door_left", changed: true},
	{tool: "open_door_with_key", key: "rusty-nail", verdict: failed, state: "rollback_left", changed: true},
	{tool: "go_back", verdict: succeeded, state: "crossroad", changed: true},
	{tool: "choose_left_path", verdict: succeeded, state: "door_left", changed: true},
	{tool: "pick_up_key", verdict: succeeded, state: "door_left"},
	{tool: "open_door_with_key", key: rightKey, verdict: succeeded, state: "entry", changed: true},
	{tool: "pick_up_key", verdict: refused, state: "entry"},
}

// arguments are the step's, as JSON. key is the one that was picked up.
func (s step) arguments(key string) string {
	switch s.key {
	case "":
		return "{}"
	case rightKey:
		return fmt.Sprintf(`{"key_id":%q}`, key)
	}
	return fmt.Sprintf(`{"key_id":%q}`, s.key)
}

// compare says how an answer differs from the one that must come.
func (s step) compare(r reply) error {
	switch {
	case r.verdict != s.verdict:
		return fmt.Errorf("it was to be %s and was %s", s.verdict, r.verdict)
	case r.state != s.state:
		return fmt.Errorf("it was to lead to %s and led to %s", s.state, r.state)
	case r.changed != s.changed:
		return fmt.Errorf("list_changed before the answer: %v, and was to be %v", r.changed, s.changed)
	}
	return nil
}

// keyIn finds the key's id in what pick_up_key told.
func keyIn(text string) (id string, ok bool) {
	_, rest, ok := strings.Cut(text, "Its id is ")
	return strings.TrimSuffix(rest, "."), ok
}
