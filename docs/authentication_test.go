package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/auth"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Each example of the page is a token file that can be read, or a configuration that check finds nothing in.
func TestAuthenticationExamples(t *testing.T) {
	const page = "authentication.md"
	for _, b := range fences(read(t, page)) {
		switch {
		case b.info != "yaml":
		case strings.HasPrefix(b.text, "# tokens.yaml"):
			if err := new(auth.Tokens).Set("tokens.yaml", []byte(b.text)).Err(); err != nil {
				t.Errorf("%s:%d: %v", page, b.line, err)
			}
		default:
			file := filepath.Join(t.TempDir(), "fsm-proxy.yaml")
			policy := filepath.Join(filepath.Dir(file), "policy.yaml")
			for path, text := range map[string]string{file: b.text, policy: "version: 1\ninitial: a\nstates: {a: {tools: [x]}}\n"} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if out, err := exec.Command(mcptest.Proxy(t), "check", "--config", file).CombinedOutput(); err != nil {
				t.Errorf("%s:%d: %v\n%s", page, b.line, err, out)
			}
		}
	}
}
