package matrix

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// fallBack has a proxy over HTTP, with no flags but its policy, before a server of either era.
func fallBack(t *testing.T, test func(t *testing.T, url string)) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era+" server", func(t *testing.T) {
			t.Parallel()
			_, server := startWalked(t, era == "modern", "stdio")
			url, _ := mcptest.Listen(t, append([]string{"--policy", mcptest.WritePolicy(t, walk)}, server.arguments()...)...)
			test(t, url)
		})
	}
}

// The Go SDK at its defaults asks for the modern era first. It finds sessions, so that its calls have a run without a
// handle: one is refused, one leads on, and then what was refused is allowed.
func TestGoSDKHasASessionByDefault(t *testing.T) {
	fallBack(t, func(t *testing.T, url string) {
		client := mcp.NewClient(&mcp.Implementation{Name: "default", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		if v := session.InitializeResult().ProtocolVersion; v != "2025-11-25" || session.ID() == "" {
			t.Errorf("revision %s, session %q", v, session.ID())
		}
		list, err := session.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			if tool.Name == "later" || tool.Name == "fsm_start_run" {
				t.Errorf("%s is listed", tool.Name)
			}
		}
		for _, step := range sessionWalk {
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: step.tool, Arguments: map[string]any{}})
			if err != nil {
				t.Fatal(step.tool, err)
			}
			said, err := json.Marshal(result)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(said), step.want) {
				t.Errorf("%s: nothing of %q in %s", step.tool, step.want, said)
			}
		}
	})
}

// So does the TypeScript SDK 2.x, where it is told to find the era out.
func TestTypeScriptSDKHasASessionOnItsOwn(t *testing.T) {
	fallBack(t, func(t *testing.T, url string) {
		var steps []string
		for _, step := range sessionWalk {
			steps = append(steps, `{"op":"call","name":"`+step.tool+`","args":{}}`)
		}
		lines := playNode(t, "sdk2.mjs", stepsFile(t, "["+strings.Join(steps, ",")+"]"), target{url: url}, "--negotiate", "auto")
		if len(lines) <= len(sessionWalk) {
			t.Fatalf("%d lines", len(lines))
		}
		for i, want := range append([]string{`"protocol":"2025-11-25"`}, wanted(sessionWalk)...) {
			said, err := json.Marshal(lines[i])
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(said), want) {
				t.Errorf("nothing of %q in %s", want, said)
			}
		}
	})
}

// sessionStep is a call, and what its result has in it.
type sessionStep struct{ tool, want string }

// sessionWalk is a walk in one session.
var sessionWalk = []sessionStep{
	{"later", "Tool 'later' is not allowed in state 'start'"}, {"step", `"text":"step"`}, {"later", `"text":"later"`},
	{"step", "Tool 'step' is not allowed in state 'moved'"},
}

func wanted(steps []sessionStep) (all []string) {
	for _, step := range steps {
		all = append(all, step.want)
	}
	return all
}
