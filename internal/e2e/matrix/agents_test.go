//go:build long

package matrix

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

const (
	callLater    = `{"op":"call","name":"later"}`
	callStep     = `{"op":"call","name":"step"}`
	offersLater  = `"ask","later","look"`
	refusedLater = "Tool 'later' is not allowed in state 'start'"
)

// What agents of the frameworks make of a list that changed, and of refusals; their models are scripts. docs/clients.md says
// it.
func TestAgents(t *testing.T) {
	for _, x := range []struct {
		name, script, surface, mode string
		steps                       []string
		want                        []string // in what the agent shows, in this order
	}{
		{"pydantic-ai lists again before each turn", "agent_pydantic_ai.py", "dynamic", "", []string{callStep, callLater},
			[]string{`"given":[],"tools":["ask","look","progress","slow","step"]`, `"tools":["later","look"]`, `"later"`, `"result":"done"`}},
		{"pydantic-ai tells its model of a refusal", "agent_pydantic_ai.py", "static", "", []string{callLater, callStep, callLater},
			[]string{offersLater, refusedLater, `"result":"done"`}},
		{"pydantic-ai ends the run with the second refusal", "agent_pydantic_ai.py", "static", "", []string{callLater, callLater, callStep},
			[]string{refusedLater, "exceeded max retries", "UnexpectedModelBehavior"}},
		{"pydantic-ai goes on with tool_error_behavior failed", "agent_pydantic_ai.py", "static", "failed", []string{callLater, callLater, callStep, callLater},
			[]string{refusedLater, refusedLater, `"result":"done"`}},
		{"openai-agents lists again before each turn", "agent_openai_agents.py", "dynamic", "", []string{callStep, callLater},
			[]string{`"given":[],"tools":["ask","look","progress","slow","step"]`, `"tools":["later","look"]`, `"later"`, `"result":"done"`}},
		{"openai-agents ends the run upon a hidden name", "agent_openai_agents.py", "dynamic", "", []string{callLater, callStep},
			[]string{"Tool later not found", "ModelBehaviorError"}},
		{"openai-agents goes on with tool_not_found_behavior", "agent_openai_agents.py", "dynamic", "return_error_to_model", []string{callLater, callStep, callLater},
			[]string{`"tools":["ask","look","progress","slow","step"]`, `"tools":["later","look"]`, `"result":"done"`}},
		{"openai-agents tells its model of refusals", "agent_openai_agents.py", "static", "", []string{callLater, callLater, callStep, callLater},
			[]string{offersLater, refusedLater, refusedLater, "State is now 'moved'", `"result":"done"`}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			_, server := startWalked(t, false, "stdio")
			url, _ := mcptest.Listen(t, append([]string{"--surface", x.surface, "--policy", mcptest.WritePolicy(t, walk)}, server.arguments()...)...)
			lines := playScript(t, mcptest.Python(t, mcptest.PythonSDK2), mcptest.PythonScript(x.script), stepsFile(t, "["+strings.Join(x.steps, ",")+"]"),
				target{url: url}, "--mode", x.mode)
			said := text(t, lines)
			for _, part := range x.want {
				_, rest, ok := strings.Cut(said, part)
				if !ok {
					t.Fatalf("nothing of %q in %s, in all: %s", part, said, text(t, lines))
				}
				said = rest
			}
		})
	}
}

// langchain's get_tools opens a session for each call. Its run is its own only where the key is none of the connection:
// two agents with tokens of their own, or with a URL each, walk without meeting.
func TestToolsWithASessionForEachCall(t *testing.T) {
	const steps = `[{"op":"list","kind":"tools"},` + callStep + `,` + callLater + `]`
	const moved = `"text":"later"`
	play := func(t *testing.T, u target, options ...string) string {
		t.Helper()
		return text(t, playScript(t, mcptest.Python(t, mcptest.PythonSDK1), mcptest.PythonScript("with_langchain.py"), stepsFile(t, steps), u,
			append(options, "--mode", "get_tools")...))
	}
	listen := func(t *testing.T, flags ...string) string {
		t.Helper()
		_, server := startWalked(t, false, "stdio")
		url, _ := mcptest.Listen(t, append(append([]string{"--surface", "static", "--policy", mcptest.WritePolicy(t, walk)}, flags...), server.arguments()...)...)
		return url
	}
	for name, test := range map[string]func(t *testing.T){
		"a session's run is left with each call": func(t *testing.T) {
			if said := play(t, target{url: listen(t)}); !strings.Contains(said, refusedLater) {
				t.Errorf("nothing of %q in %s", refusedLater, said)
			}
		},
		"a process's run, too": func(t *testing.T) {
			_, server := startWalked(t, false, "stdio")
			argv := append([]string{mcptest.Proxy(t), "run", "--surface", "static", "--policy", mcptest.WritePolicy(t, walk)}, server.arguments()...)
			if said := play(t, target{argv: argv}); !strings.Contains(said, refusedLater) {
				t.Errorf("nothing of %q in %s", refusedLater, said)
			}
		},
		"by principal": func(t *testing.T) {
			issuer := mcptest.NewIssuer(t)
			url := listen(t, "--run-key", "legacy=principal", "--oidc-issuer", issuer.URL, "--oidc-audience", mcptest.Audience)
			for _, who := range []string{"ann", "bob"} {
				if said := play(t, target{url: url}, "--bearer", issuer.Token(who, nil)); !strings.Contains(said, moved) {
					t.Errorf("%s: nothing of %q in %s", who, moved, said)
				}
			}
		},
		"by URL": func(t *testing.T) {
			url := listen(t, "--run-key", "legacy=path", "--path-create")
			for _, run := range []string{"3f1a7c5e9b2d48c6a0e1f2d3c4b5a697", "9b2d48c6a0e1f2d3c4b5a6973f1a7c5e"} {
				if said := play(t, target{url: url + "/runs/" + run}); !strings.Contains(said, moved) {
					t.Errorf("%s: nothing of %q in %s", run, moved, said)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

var pythonFence = regexp.MustCompile("(?ms)^```python\n(.*?)^```$")

// The examples in docs/clients.md run as they stand, each with a proxy at its URL.
func TestPythonExamples(t *testing.T) {
	page, err := os.ReadFile("../../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := pythonFence.FindAllSubmatch(page, -1)
	if len(examples) < 4 {
		t.Fatalf("%d examples", len(examples))
	}
	for i, example := range examples {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			code, sdk := string(example[1]), mcptest.PythonSDK2
			var flags []string
			if strings.Contains(code, "langchain") {
				sdk = mcptest.PythonSDK1
			}
			if strings.Contains(code, "/mcp/runs/") {
				flags = []string{"--run-key", "legacy=path", "--path-create"}
			}
			_, server := startWalked(t, false, "stdio")
			url, _ := mcptest.Listen(t, append(append(flags, "--policy", mcptest.WritePolicy(t, walk)), server.arguments()...)...)
			code = strings.ReplaceAll(code, "http://127.0.0.1:8080/mcp", url)
			out, err := exec.CommandContext(t.Context(), mcptest.Python(t, sdk), "-c", code).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "['ask', 'look', 'progress', 'slow', 'step']") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
