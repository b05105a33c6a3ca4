package crossroads_test

import (
	"context"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/fsm-proxy/fsm-proxy/internal/crossroads"
)

const keyID = "key-7"

func connect(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.NewInProcessClient(crossroads.New(crossroads.Config{KeyID: keyID}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Initialize(context.Background(), mcp.InitializeRequest{}); err != nil {
		t.Fatal(err)
	}
	return c
}

func call(t *testing.T, c *client.Client, name string, args any) (text string, ok bool) {
	t.Helper()
	var req mcp.CallToolRequest
	req.Params.Name, req.Params.Arguments = name, args
	res, err := c.CallTool(context.Background(), req)
	if err != nil {
		t.Fatalf("calling %s: %v", name, err)
	}
	return res.Content[0].(mcp.TextContent).Text, !res.IsError
}

// Every tool can be called at any time; what it answers depends on the world
// alone.
func TestWorld(t *testing.T) {
	steps := []struct {
		name string
		args any
		ok   bool
		text string
	}{
		{"choose_left_path", nil, false, "A gate bars the left path."},
		{"open_door", nil, false, "The door is stuck. It gave way a little."},
		{"open_door", nil, true, "The door swings open."},
		{"choose_right_path", nil, false, "A gate bars the right path."},
		{"press_button", nil, true, "Click. The gates of both paths rise."},
		{"choose_left_path", nil, true, "You walk down the left path to a locked door."},
		{"open_door_with_key", map[string]string{"key_id": "key-8"}, false, `The key "key-8" does not fit.`},
		{"open_door_with_key", map[string]int{"key_id": 7}, false, "Which key? Give its id as key_id."},
		{"go_back", nil, true, "You are back where the paths part."},
		{"pick_up_key", nil, true, "You pick up a key. Its id is key-7."},
		{"open_door_with_key", map[string]string{"key_id": keyID}, true, "The lock turns. You are through."},
		{"open_door", nil, true, "The door swings open."},
	}
	c := connect(t)
	for _, s := range steps {
		if text, ok := call(t, c, s.name, s.args); text != s.text || ok != s.ok {
			t.Errorf("%s answered %q, ok %v; want %q, %v", s.name, text, ok, s.text, s.ok)
		}
	}
}

func TestEveryServerHasItsOwnWorld(t *testing.T) {
	first, second := connect(t), connect(t)
	call(t, first, "press_button", nil)
	if _, ok := call(t, second, "choose_left_path", nil); ok {
		t.Error("the button of one world opened the gates of another")
	}
}
