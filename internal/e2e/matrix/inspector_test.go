//go:build long

package matrix

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// What the Inspector's command line is asked for; each is a connection of its own.
var inspections = [][]string{
	{"--method", "tools/list"},
	{"--method", "resources/list"},
	{"--method", "prompts/list"},
	{"--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=hello"},
	{"--method", "tools/call", "--tool-name", "echo"},
	{"--method", "tools/call", "--tool-name", "get-structured-content", "--tool-arg", "location=Chicago"},
	{"--method", "resources/read", "--uri", "demo://resource/static/document/features.md"},
	{"--method", "prompts/get", "--prompt-name", "args-prompt", "--prompt-args", "city=Rome"},
	{"--method", "logging/setLevel", "--log-level", "debug"},
}

// The Inspector's command line prints the same, and ends with the same exit code, as on a direct connection.
func TestInspector(t *testing.T) {
	for _, u := range upstreams[:2] {
		server := u.start(t)
		proxied := map[string]target{}
		for downstream, before := range downstreams {
			proxied[downstream] = before(t, openPolicy(t, nil), server)
		}
		for _, arguments := range inspections {
			t.Run(u.name+"/"+strings.Join(arguments[1:], " "), func(t *testing.T) {
				t.Parallel()
				want, wantCode := inspect(t, server, arguments)
				for downstream, through := range proxied {
					got, gotCode := inspect(t, through, arguments)
					if want != got || wantCode != gotCode {
						t.Errorf("over %s: exit codes %d and %d\ndirect:  %s\nproxied: %s", downstream, wantCode, gotCode, excerpt(want, got), excerpt(got, want))
					}
				}
			})
		}
	}
}

// ownError is the Inspector's error among what else is on standard error; empty: none.
func ownError(complaints string) string {
	for text := range strings.Lines(complaints) {
		if strings.HasPrefix(text, `{"error"`) {
			return text
		}
	}
	return ""
}

// inspect runs the Inspector's command line once and returns its standard output, or its error, and exit code.
func inspect(t *testing.T, u target, arguments []string) (string, int) {
	t.Helper()
	server := map[string]any{"type": "streamable-http", "url": u.url}
	if u.url == "" {
		server = map[string]any{"command": u.argv[0], "args": u.argv[1:]}
	}
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"it": server}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "servers.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), mcptest.Node22(t), append([]string{
		mcptest.NodePackage(t, "@modelcontextprotocol/inspector"), "--cli", "--config", file, "--server", "it"}, arguments...)...)
	home := t.TempDir() // else those that run side by side share what it keeps there, and its locks
	command.Env = append(os.Environ(), "HOME="+home, "USERPROFILE="+home)
	var complaints strings.Builder
	command.Stderr = &complaints
	out, err := command.Output()
	if code := command.ProcessState.ExitCode(); code >= 0 {
		if len(out) == 0 {
			out = []byte(ownError(complaints.String()))
		}
		return steady(string(out), ""), code
	}
	t.Fatalf("the Inspector: %v\n%s", err, complaints.String())
	return "", 0
}
