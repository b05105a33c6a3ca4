//go:build long

package matrix

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// byHandle are the clients of the modern era; each plays a list of steps over a connection of its own, and returns what
// it saw as text.
var byHandle = map[string]func(t *testing.T, steps string, u target) string{
	"typescript-sdk-2": func(t *testing.T, steps string, u target) string {
		return text(t, playNode(t, "sdk2.mjs", stepsFile(t, steps), u, "--negotiate", "auto"))
	},
	"go-sdk": func(t *testing.T, steps string, u target) string {
		return text(t, playGoAt(t, stepsFile(t, steps), u, 0, mcptest.ModernRevision))
	},
	"inspector": func(t *testing.T, steps string, u target) string {
		var out strings.Builder
		for _, step := range readSteps(t, stepsFile(t, steps)) {
			said, _ := inspect(t, u, append(inspectionWith(t, step), "--protocol-era", "modern"))
			out.WriteString(said + "\n")
		}
		return out.String()
	},
}

func text(t *testing.T, lines []line) string {
	t.Helper()
	out, err := json.Marshal(lines)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// inspectionWith is inspection with the step's arguments.
func inspectionWith(t *testing.T, step json.RawMessage) []string {
	var read struct {
		Name string
		Args map[string]string
	}
	if err := json.Unmarshal(step, &read); err != nil {
		t.Fatal(err)
	}
	arguments := inspection(t, step)
	for name, value := range read.Args {
		arguments = append(arguments, "--tool-arg", name+"="+value)
	}
	return arguments
}

var handleIn = regexp.MustCompile(`"fsm_run\\?": ?\\?"([A-Z2-7]{26})`)

// Real clients list, start a run, and go on with it by its handle over other connections: the tools' edited definitions,
// and the proxy's own tools with their structured results, are what each of them takes.
func TestClientsByHandle(t *testing.T) {
	for client, play := range byHandle {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(client+"/"+era, func(t *testing.T) {
				t.Parallel()
				_, server := startWalked(t, era == "modern", "stdio")
				url, _ := mcptest.Listen(t, append([]string{"--protocol", "both", "--policy", mcptest.WritePolicy(t, walk)}, server.arguments()...)...)
				proxied := target{url: url}
				begun := play(t, `[{"op":"list","kind":"tools"},{"op":"call","name":"fsm_start_run"}]`, proxied)
				found := handleIn.FindStringSubmatch(begun)
				if found == nil || !strings.Contains(begun, `fsm_end_run`) {
					t.Fatalf("no run was begun: %s", begun)
				}
				of := func(tool string) string {
					return `{"op":"call","name":"` + tool + `","args":{"fsm_run":"` + found[1] + `"}}`
				}
				for _, x := range []struct{ tool, want string }{
					{"step", "State is now 'moved'"}, {"step", "invalid_transition"}, {"look", "State is now 'moved'"}, {"fsm_end_run", "The run has ended."}, {"look", "run_not_found"},
				} {
					if said := play(t, "["+of(x.tool)+"]", proxied); !strings.Contains(said, x.want) {
						t.Errorf("%s: nothing of %q in %s", x.tool, x.want, said)
					}
				}
			})
		}
	}
}
