package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// A URL where no MCP server is, by its status, is asked about: whether /mcp is missing, and whether the server is of the
// old transport. So says each command that connects.
func TestURLWithoutAServer(t *testing.T) {
	policy := write(t, "plain.yaml", plainPolicy)
	commands := map[string]func(t *testing.T, args ...string) string{
		"init": func(t *testing.T, args ...string) string { return failing(t, append([]string{"init"}, args...)...) },
		"check": func(t *testing.T, args ...string) string {
			return failing(t, append([]string{"check", policy}, args...)...)
		},
		"lock": func(t *testing.T, args ...string) string {
			return failing(t, append([]string{"lock", policy}, args...)...)
		},
		"run": func(t *testing.T, args ...string) string {
			s, p := mcptest.Dial(t, append([]string{mcptest.Proxy(t), "run", "--policy", policy}, args...)...)
			answer := s.Call("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)
			p.Log().Await(t, "Then give --upstream-sse")
			return string(answer.Error)
		},
	}
	for _, status := range []int{http.StatusNotFound, http.StatusMethodNotAllowed} {
		elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(elsewhere.Close)
		for name, run := range commands {
			t.Run(name+" "+http.StatusText(status), func(t *testing.T) {
				t.Parallel()
				said := run(t, "--upstream", elsewhere.URL+"/")
				contains(t, said, fmt.Sprintf("HTTP %d", status))
				contains(t, said, "is /mcp missing from the URL ("+elsewhere.URL+"/mcp), or is it a server of the old HTTP+SSE transport? Then give --upstream-sse")
				if strings.Contains(said, "runs by itself") {
					t.Errorf("it asks whether a server runs that has answered: %s", said)
				}
			})
		}
	}
}

// failing is what a command says on standard error that fails.
func failing(t *testing.T, args ...string) string {
	t.Helper()
	r := command(t, nil, args...)
	if r.code != exit.Failed {
		t.Errorf("exit code %d", r.code)
	}
	return r.stderr
}
