package matrix

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

func TestMain(m *testing.M) {
	// Node 22 keeps what it has compiled of the Inspector, which is started hundreds of times; older ones know no such variable.
	os.Setenv("NODE_COMPILE_CACHE", filepath.Join(mcptest.Root(), ".deps", "node-cache"))
	mcptest.Main(m, mcptest.Servers{"mangled": mcptest.Mangled(), "failing": mcptest.Failing(),
		"walked": walked(false), "walked modern": walked(true), "slow": {Handle: slow}})
}

// slow is an upstream that starts when the gate "started" is open.
func slow(e *mcptest.Exchange) {
	if e.Method == "initialize" {
		e.Stderr("npm warn fetching\n")
		e.Gate("started")
	}
	walked(false).Handle(e)
}

// target is something that a client can connect to: a command, or a URL.
type target struct {
	argv []string
	url  string
	env  []string // NAME=VALUE for the command
	sse  bool     // the URL speaks the old HTTP+SSE transport

	folder string // where the filesystem server works
	page   string // a URL that it can reach
}

// upstream is a real server and the scenario that is played with it. Each start gives a fresh one, so that a
// session finds nothing of another's.
type upstream struct {
	name     string
	scenario string
	start    func(t *testing.T) target
	direct   func(t *testing.T) target // what the session is compared with; default start
	bound    []string                  // resources that only a template serves, bound by their URI
}

var dynamic = []string{"demo://resource/dynamic/text/1", "demo://resource/dynamic/blob/2"}

var upstreams = []upstream{
	{name: "everything", scenario: "everything", start: everything, bound: dynamic},
	{name: "everything-http", scenario: "everything", start: everythingHTTP, bound: dynamic},
	{name: "everything-sse", scenario: "everything", start: everythingSSE, direct: everythingHTTP, bound: dynamic},
	{name: "filesystem", scenario: "filesystem", start: filesystem},
	{name: "memory", scenario: "memory", start: memory},
	{name: "sequential-thinking", scenario: "sequential", start: sequential},
	{name: "conformance", scenario: "conformance", start: conformance, bound: []string{"test://template/123/data"}},
	{name: "conformance-http", scenario: "conformance", start: conformanceHTTP, bound: []string{"test://template/123/data"}},
}

func everything(t *testing.T) target { return target{argv: mcptest.Everything(t)} }

func everythingHTTP(t *testing.T) target { return target{url: mcptest.EverythingHTTP(t)} }

func everythingSSE(t *testing.T) target { return target{url: mcptest.EverythingSSE(t), sse: true} }

func sequential(t *testing.T) target { return target{argv: mcptest.SequentialThinking(t)} }

func conformance(t *testing.T) target { return target{argv: []string{mcptest.ConformanceServer(t)}} }

func conformanceHTTP(t *testing.T) target { return target{url: mcptest.ConformanceHTTP(t)} }

func conformanceStateless(t *testing.T) target { return target{url: mcptest.ConformanceStateless(t)} }

func memory(t *testing.T) target {
	graph := filepath.Join(t.TempDir(), "graph.jsonl")
	return target{argv: mcptest.Memory(t), env: []string{"MEMORY_FILE_PATH=" + graph}}
}

func filesystem(t *testing.T) target {
	folder := t.TempDir()
	dot, err := base64.StdEncoding.DecodeString(
		"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"notes.txt": []byte("first\nsecond\n"), "dot.png": dot} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return target{argv: mcptest.Filesystem(t, folder), folder: folder}
}

// openPolicy binds everything in one state.
func openPolicy(t *testing.T, bound []string) string {
	t.Helper()
	var resources strings.Builder
	for _, uri := range bound {
		resources.WriteString("\n      \"" + uri + "\":")
	}
	return mcptest.WritePolicy(t, `version: 1
name: open
initial: open
states:
  open:
    tools:
      "*":
    prompts:
      "*":
    resources:
      "*":`+resources.String()+"\n")
}

// arguments are those of `fsm-proxy run` that name the upstream.
func (u target) arguments() []string {
	var args []string
	for _, variable := range u.env {
		args = append(args, "--env", variable)
	}
	if u.sse {
		args = append(args, "--upstream-sse")
	}
	if u.url != "" {
		return append(args, "--upstream", u.url)
	}
	return append(append(args, "--"), u.argv...)
}

// downstreams are the two ways in which the proxy serves: each puts it before a target.
var downstreams = map[string]func(t *testing.T, policy string, u target) target{
	"stdio": func(t *testing.T, policy string, u target) target {
		return target{argv: append([]string{mcptest.Proxy(t), "run", "--no-hint", "--policy", policy}, u.arguments()...)}
	},
	"http": func(t *testing.T, policy string, u target) target {
		url, _ := mcptest.Listen(t, append([]string{"--no-hint", "--policy", policy}, u.arguments()...)...)
		return target{url: url}
	},
}
