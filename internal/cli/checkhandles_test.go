//go:build unix

package cli

import (
	"strings"
	"testing"
)

const (
	oddTools = `{"name":"touch","inputSchema":{"type":"object"}},{"name":"apply","inputSchema":{"oneOf":[{}]}},` +
		`{"name":"read_a","inputSchema":{"properties":{"job":{}}}},{"name":"fsm_end_run","inputSchema":{}}`
	byHandle = `is out of reach under the run key "handle", the default for modern clients over HTTP: `
)

// A tool whose calls cannot carry a handle is found where it is bound: as a note, and
// as a warning where a configuration says that runs are found by handle.
func TestCheckTellsWhatIsOutOfReachByHandle(t *testing.T) {
	d := newDrift(t, "version: 1\ninitial: a\nstates:\n  a:\n    tools: [touch, apply, read_a, fsm_end_run]\n")
	d.offer(oddTools)
	r := command(t, nil, append([]string{"check", d.policy}, d.server...)...)
	contains(t, r.stdout, `p.yaml:5:20: note: "apply" `+byHandle+"its inputSchema is combined with other schemas; choose modern=principal or modern=path")
	contains(t, r.stdout, `p.yaml:5:35: note: "fsm_end_run" `+byHandle+"the proxy has a tool of this name itself")
	if n := strings.Count(r.stdout, byHandle); n != 2 || r.code != 0 {
		t.Errorf("%d findings, exit code %d\n%s%s", n, r.code, r.stdout, r.stderr)
	}
	for runs, want := range map[string]int{"{handle_arg: job}": 3, "{key: [modern=handle]}": 2, "{key: [modern=path]}": 0} {
		config := configured(t, "listen: {address: '127.0.0.1:0'}\nupstream: {url: 'http://127.0.0.1:1/mcp'}\nruns: "+runs+"\n")
		r := command(t, nil, append([]string{"check", "--config", config, d.policy}, d.server...)...)
		if n := strings.Count(r.stdout, `warning: "`); n != want || strings.Count(r.stdout, byHandle) != want {
			t.Errorf("%s: %d warnings, want %d\n%s%s", runs, n, want, r.stdout, r.stderr)
		}
	}
}
