package mcptest

import (
	"encoding/json"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// nodeFolder is where `make deps` installs the npm packages.
func nodeFolder() string { return filepath.Join(Root(), "internal", "mcptest", "node") }

// NodeScript returns the path of one of the client scripts beside package.json.
func NodeScript(name string) string { return filepath.Join(nodeFolder(), name) }

// Node returns the Node that the machine has.
func Node(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("the tests run against real servers, which need Node.js 20 or newer: install it and run make deps")
	}
	return path
}

// Node22 returns the Node 22 that comes as an npm package, for the suites that want one.
func Node22(t testing.TB) string {
	t.Helper()
	return installed(t, filepath.Join(nodeFolder(), "node_modules", "node", "bin", "node"+executableSuffix()))
}

// NodePackage returns the script that an npm package installs as its command.
func NodePackage(t testing.TB, name string) string {
	t.Helper()
	folder := filepath.Join(nodeFolder(), "node_modules", filepath.FromSlash(name))
	manifest, err := os.ReadFile(installed(t, filepath.Join(folder, "package.json")))
	if err != nil {
		t.Fatalf("reading the manifest of %s: %v", name, err)
	}
	script := command(manifest)
	if script == "" {
		t.Fatalf("npm package %s installs no command", name)
	}
	return installed(t, filepath.Join(folder, filepath.FromSlash(script)))
}

// command returns the first command of an npm manifest, by name. "bin" is a path or an object of paths.
func command(manifest []byte) string {
	var one struct {
		Bin string `json:"bin"`
	}
	if json.Unmarshal(manifest, &one) == nil {
		return one.Bin
	}
	var many struct {
		Bin map[string]string `json:"bin"`
	}
	if json.Unmarshal(manifest, &many) != nil {
		return ""
	}
	if len(many.Bin) == 0 {
		return ""
	}
	return many.Bin[slices.Min(slices.Collect(maps.Keys(many.Bin)))]
}

func installed(t testing.TB, path string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is not there: run make deps", path)
	}
	return path
}

// ConformanceServer returns the path of go-sdk's conformance server. It serves stdio without arguments and
// HTTP with -http ADDRESS; -stateless=false gives sessions.
func ConformanceServer(t testing.TB) string {
	t.Helper()
	return installed(t, filepath.Join(Root(), ".deps", "bin", "everything-server"))
}

// Everything returns the command of server-everything on stdio.
func Everything(t testing.TB) []string { return nodeServer(t, "server-everything", "stdio") }

// Filesystem returns the command of server-filesystem on stdio, allowed to work in the folder.
func Filesystem(t testing.TB, folder string) []string {
	return nodeServer(t, "server-filesystem", folder)
}

// Memory is the command of a server of a knowledge graph, in a file of the test's own: by default it is one beside the server,
// which all that run it share. MEMORY_FILE_PATH names another one.
func Memory(t testing.TB) []string {
	t.Helper()
	folder := t.TempDir()
	variables := filepath.Join(folder, "variables")
	if err := os.WriteFile(variables, []byte("MEMORY_FILE_PATH="+filepath.ToSlash(filepath.Join(folder, "graph.jsonl"))+"\n"), 0o600); err != nil {
		t.Fatalf("writing the variables of a server: %v", err)
	}
	server := nodeServer(t, "server-memory")
	return append([]string{server[0], "--env-file=" + variables}, server[1:]...)
}

// SequentialThinking returns the command of server-sequential-thinking on stdio.
func SequentialThinking(t testing.TB) []string { return nodeServer(t, "server-sequential-thinking") }

// Playwright returns the command of @playwright/mcp on stdio, without a window. No browser is needed to list.
func Playwright(t testing.TB) []string {
	return []string{Node(t), NodePackage(t, "@playwright/mcp"), "--headless", "--isolated"}
}

func nodeServer(t testing.TB, name string, args ...string) []string {
	t.Helper()
	return append([]string{Node(t), NodePackage(t, "@modelcontextprotocol/"+name)}, args...)
}

// EverythingHTTP starts server-everything on Streamable HTTP and returns its endpoint.
func EverythingHTTP(t testing.TB) string {
	t.Helper()
	return everythingAt(t, "streamableHttp") + "/mcp"
}

// EverythingSSE starts server-everything on the old HTTP+SSE transport and returns its endpoint.
func EverythingSSE(t testing.TB) string {
	t.Helper()
	return everythingAt(t, "sse") + "/sse"
}

func everythingAt(t testing.TB, mode string) string {
	t.Helper()
	address := FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatalf("finding a free port: %v", err)
	}
	argv := nodeServer(t, "server-everything", mode)
	Start(t, []string{"PORT=" + port}, argv...).AwaitListening(address)
	return "http://" + address
}

// ConformanceHTTP starts go-sdk's conformance server with sessions and returns its endpoint.
func ConformanceHTTP(t testing.TB) string {
	t.Helper()
	return conformanceAt(t, "-stateless=false")
}

// ConformanceStateless starts go-sdk's conformance server without sessions, which speaks both eras, and returns its
// endpoint.
func ConformanceStateless(t testing.TB) string {
	t.Helper()
	return conformanceAt(t, "-stateless=true")
}

func conformanceAt(t testing.TB, mode string) string {
	t.Helper()
	address := FreeAddress(t)
	Start(t, nil, ConformanceServer(t), "-http", address, mode).AwaitListening(address)
	return "http://" + address + "/mcp"
}

// Lines splits what a client script printed.
func Lines(text []byte) []string {
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}
