//go:build long

package matrix

import (
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// In shadow a policy that binds nothing is not there: every client sees the same
// session as on a direct connection, with every server, over every pairing of framings.
func TestShadowMatrix(t *testing.T) {
	t.Parallel()
	for client, play := range clients {
		for _, u := range upstreams {
			t.Run(client+"/"+u.name, func(t *testing.T) {
				t.Parallel()
				direct := directSession(t, client, u)
				for downstream, before := range inShadow {
					t.Run(downstream, func(t *testing.T) {
						server := u.start(t)
						policy := mcptest.WritePolicy(t, "version: 1\ninitial: blind\nupstream_may: []\nstates: {blind: }\n")
						lines := play(t, scenarioFile(t, u.scenario, server), before(t, policy, server))
						sameSession(t, direct, comparable(t, lines, server.folder, nil))
					})
				}
			})
		}
	}
}

// inShadow are downstreams whose policy is not enforced.
var inShadow = map[string]func(t *testing.T, policy string, u target) target{
	"stdio": func(t *testing.T, policy string, u target) target {
		return target{argv: append([]string{mcptest.Proxy(t), "run", "--mode", "shadow", "--policy", policy}, u.arguments()...)}
	},
	"http": func(t *testing.T, policy string, u target) target {
		url, _ := mcptest.Listen(t, append([]string{"--mode", "shadow", "--policy", policy}, u.arguments()...)...)
		return target{url: url}
	},
}
