//go:build long

package matrix

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// The TypeScript SDKs find their way to a token as well.
func TestAuthorizationOfTheTypeScriptSDKs(t *testing.T) {
	t.Parallel()
	for _, sdk := range []string{"1", "2"} {
		for _, at := range []authorized{plainEndpoint, ownURL} {
			issuer := mcptest.NewIssuer(t)
			resource, _ := at.serve(t, issuer)
			url := resource + at.path
			out, err := exec.CommandContext(t.Context(), mcptest.Node(t), mcptest.NodeScript("authorization.mjs"), sdk, url).CombinedOutput()
			if got, want := strings.TrimSpace(string(out)), url+" "+mcptest.Scope+" ok"; err != nil || got != want {
				t.Errorf("SDK %s at %q: %v, %s; want %s", sdk, at.path, err, got, want)
			}
		}
	}
}
