//go:build long

package matrix

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// verdict is one scenario's line in the suite's summary.
var verdict = regexp.MustCompile(`(?m)^([✓✗]) ([\w-]+): (\d+) passed, (\d+) failed`)

// Every scenario of the official suite that passes directly passes through the proxy, over HTTP and over stdio
// to the upstream. No failure is expected, so no file names one.
func TestConformance(t *testing.T) {
	direct := suite(t, mcptest.ConformanceHTTP(t))
	if len(direct) < 30 {
		t.Fatalf("the suite ran only %d scenarios directly", len(direct))
	}
	for _, u := range []upstream{
		{name: "http", start: conformanceHTTP},
		{name: "stdio", start: conformance},
	} {
		t.Run(u.name, func(t *testing.T) {
			policy := openPolicy(t, []string{"test://template/123/data"})
			proxied := suite(t, downstreams["http"](t, policy, u.start(t)).url)
			for _, scenario := range slices.Sorted(maps.Keys(direct)) {
				if direct[scenario].passed && !proxied[scenario].passed {
					t.Errorf("%s passes directly, and not through the proxy: %s", scenario, proxied[scenario].text)
				}
			}
		})
	}
}

// outcome is what became of one scenario.
type outcome struct {
	passed bool
	text   string
}

// suite runs the requirements of 2025-11-25 against an endpoint and returns what became of each scenario.
func suite(t *testing.T, url string) map[string]outcome {
	t.Helper()
	command := exec.CommandContext(t.Context(), mcptest.Node22(t), mcptest.NodePackage(t, "@modelcontextprotocol/conformance"),
		"server", "--url", url, "--requirements", "2025-11-25")
	command.Dir = t.TempDir() // the suite leaves its results in the folder it is started in
	out, err := command.CombinedOutput()
	outcomes := map[string]outcome{}
	for _, found := range verdict.FindAllStringSubmatch(string(out), -1) {
		outcomes[found[2]] = outcome{passed: found[1] == "✓", text: found[0]}
	}
	if err != nil {
		t.Logf("the suite: %v\n%s", err, out)
	}
	return outcomes
}
