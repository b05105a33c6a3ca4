package crossroads

import (
	"fmt"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// world is what is true about the door, the button and the key. Its methods are
// the tools; each returns what to tell and whether it worked.
type world struct {
	keyID string // never changes

	mu      sync.Mutex // guards what follows
	pushed  bool       // the door was pushed before
	pressed bool       // the button was pressed
}

func (w *world) tools() []tool {
	return []tool{
		w.simple("open_door", "Push the heavy entrance door.", w.openDoor),
		w.simple("press_button", "Press the brass button on the wall.", w.pressButton),
		w.simple("choose_left_path", "Walk down the left path.", w.path("left")),
		w.simple("choose_right_path", "Walk down the right path.", w.path("right")),
		w.simple("pick_up_key", "Pick up the key that lies on the floor.", w.pickUpKey),
		w.simple("go_back", "Walk back to where the paths part.", w.goBack),
		{
			tool: mcp.NewTool("open_door_with_key",
				mcp.WithDescription("Unlock the door at the path's end."),
				mcp.WithString("key_id", mcp.Required(), mcp.Description("The id of the key to use."))),
			act: w.unlock,
		},
	}
}

// simple is a tool without arguments.
func (w *world) simple(name, description string, act func() (string, bool)) tool {
	return tool{
		tool: mcp.NewTool(name, mcp.WithDescription(description)),
		act:  func(mcp.CallToolRequest) (string, bool) { return act() },
	}
}

func (w *world) openDoor() (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.pushed {
		w.pushed = true
		return "The door is stuck. It gave way a little.", false
	}
	return "The door swings open.", true
}

func (w *world) pressButton() (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pressed = true
	return "Click. The gates of both paths rise.", true
}

func (w *world) path(side string) func() (string, bool) {
	return func() (string, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.pressed {
			return "A gate bars the " + side + " path.", false
		}
		return "You walk down the " + side + " path to a locked door.", true
	}
}

func (w *world) pickUpKey() (string, bool) {
	return "You pick up a key. Its id is " + w.keyID + ".", true
}

func (w *world) goBack() (string, bool) { return "You are back where the paths part.", true }

func (w *world) unlock(req mcp.CallToolRequest) (string, bool) {
	id, err := req.RequireString("key_id")
	if err != nil {
		return "Which key? Give its id as key_id.", false
	}
	if id != w.keyID {
		return fmt.Sprintf("The key %q does not fit.", id), false
	}
	return "The lock turns. You are through.", true
}
