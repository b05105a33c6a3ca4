package matrix

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// The refusal of a tool that declares an outputSchema reaches the model whole: SDK 1.x validates
// structuredContent against the schema even in an error, and would throw the refusal away. The tool must be
// listed for that, so the surface is the static one; on the dynamic one the tool is hidden, and refused alike.
func TestRefusalReachesTypeScriptSDK1(t *testing.T) {
	for _, surface := range []string{"dynamic", "static"} {
		for _, script := range []string{"sdk1.mjs", "sdk2.mjs"} {
			for downstream := range downstreams {
				t.Run(surface+"/"+script+"/"+downstream, func(t *testing.T) {
					server := filesystem(t)
					lines := playNode(t, script, scenarioFile(t, "refusal", server), gated(t, downstream, surface, server))
					texts := comparable(t, lines, server.folder, nil)
					for _, part := range []string{
						`"isError":true`, "Tool 'write_file' is not allowed in state 'looking' (Look at the folder first.)", "Allowed now: ",
						"list_directory", "Use tools/list to see them.", `"error":"invalid_transition"`,
					} {
						if !strings.Contains(texts[2], part) {
							t.Errorf("the refusal lacks %q: %s", part, texts[2])
						}
					}
					if !strings.Contains(texts[4], "Successfully wrote") {
						t.Errorf("after a look the write is %s", texts[4])
					}
				})
			}
		}
	}
}

// gated puts the proxy with a policy of two states before the filesystem server.
func gated(t *testing.T, downstream, surface string, server target) target {
	t.Helper()
	policy := mcptest.WritePolicy(t, `version: 1
name: look-first
initial: looking
states:
  looking:
    description: Look at the folder first.
    tools:
      list_directory: writing
  writing:
    tools:
      list_directory:
      write_file: looking
`)
	options := append([]string{"--surface", surface, "--policy", policy}, server.arguments()...)
	if downstream == "stdio" {
		return target{argv: append([]string{mcptest.Proxy(t), "run"}, options...)}
	}
	url, _ := mcptest.Listen(t, options...)
	return target{url: url}
}
