//go:build long

package matrix

import (
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// research is moved by a task alone.
const research = `version: 1
name: research
initial: asking
states:
  asking:
    tools:
      simulate-research-query: reading
  reading:
    tools: [echo]
`

// The SDK's own way through a task of a real server, which asks a person in the middle of it, is the same through the
// proxy; and its end moves the run before the SDK has the result.
func TestTasksOfServerEverything(t *testing.T) {
	const research1 = `{"op":"task","name":"simulate-research-query","args":{"topic":"python","ambiguous":true}}`
	const more = `,{"op":"tasks"},{"op":"list","kind":"tools"},` + research1 + `,{"op":"call","name":"echo","args":{"message":"read"}}`
	t.Parallel()
	direct := playNode(t, "sdk1.mjs", stepsFile(t, "["+research1+"]"), everything(t))
	want := comparable(t, direct, "", nil)[1]
	if !strings.Contains(want, `"status":"input_required"`) || !strings.Contains(want, "elicitation/create") || !strings.Contains(want, "# Research Report: python") {
		t.Fatalf("the task of the server itself: %s", want)
	}
	for upstream, start := range map[string]func(*testing.T) target{"stdio": everything, "http": everythingHTTP} {
		for downstream, before := range downstreams {
			t.Run(downstream+" to "+upstream, func(t *testing.T) {
				t.Parallel()
				proxied := before(t, mcptest.WritePolicy(t, research), start(t))
				lines := comparable(t, playNode(t, "sdk1.mjs", stepsFile(t, `[{"op":"list","kind":"tools"},`+research1+more+"]"), proxied), "", nil)
				if lines[2] != want {
					t.Errorf("the task:\n got %s\nwant %s", lines[2], want)
				}
				for n, part := range map[int]string{
					1: `"execution":{"taskSupport":"required"}`, 3: `{"tasks":["completed"]}`, 4: `"name":"echo"`, 5: `Tool 'simulate-research-query' is not allowed in state 'reading'`,
					6: "Echo: read",
				} {
					if !strings.Contains(lines[n], part) {
						t.Errorf("nothing of %q in %s", part, lines[n])
					}
				}
				if i := slices.IndexFunc(lines[4:], func(l string) bool { return strings.Contains(l, `"title":"Simulate Research`) }); i >= 0 {
					t.Errorf("the tool is listed after the task: %s", lines[4+i])
				}
			})
		}
	}
}
