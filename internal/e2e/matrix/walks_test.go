package matrix

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/golden"
)

// wrapped is a server that a new user wraps by the README: init drafts a policy, the user opens a way to what the draft
// forbids, check finds nothing, and run stands between a client and the server.
type wrapped struct {
	name    string
	asTyped string // how a user starts it, with a comment
	pinned  string // the package whose version `make deps` installs
	start   func(t *testing.T) target
	open    string // what the draft gets in place of `stay`, as NAME: VALUE; empty: testdata/walks has the policy
	walk    []walkCall
}

// walkCall is one call of a walk; says is in its answer, refused: the policy refuses it.
type walkCall struct {
	tool, args string
	says       string
}

const refused = "is not allowed in state"

var wrappedServers = []wrapped{
	{name: "filesystem", asTyped: "npx -y @modelcontextprotocol/server-filesystem DIR", pinned: "@modelcontextprotocol/server-filesystem",
		start: filesystem, open: "list_allowed_directories: {on_success: destructive, on_unknown: stay}", walk: []walkCall{
			{"write_file", `{"path":"{{dir}}/new.txt","content":"x"}`, refused},
			{"list_allowed_directories", `{}`, "Allowed directories"},
			{"write_file", `{"path":"{{dir}}/new.txt","content":"x"}`, "Successfully wrote"},
		}},
	{name: "memory", asTyped: "npx -y @modelcontextprotocol/server-memory", pinned: "@modelcontextprotocol/server-memory",
		start: memory, open: "read_graph: {on_success: destructive, on_unknown: stay}", walk: []walkCall{
			{"delete_entities", `{"entityNames":["Ada"]}`, refused},
			{"read_graph", `{}`, "entities"},
			{"delete_entities", `{"entityNames":["Ada"]}`, "deleted successfully"},
		}},
	{name: "git", asTyped: "uvx mcp-server-git", pinned: "mcp-server-git",
		start: gitServer, open: "git_status: {on_success: destructive, on_unknown: stay}", walk: []walkCall{
			{"git_reset", `{"repo_path":"{{dir}}"}`, refused},
			{"git_status", `{"repo_path":"{{dir}}"}`, "Repository status"},
			{"git_reset", `{"repo_path":"{{dir}}"}`, "staged changes reset"},
		}},
	{name: "sqlite", asTyped: "uvx --with 'mcp<2' mcp-server-sqlite --db-path FILE   # not made for version 2 of the SDK: ends at its start without", pinned: "mcp-server-sqlite",
		start: func(t *testing.T) target {
			return target{argv: []string{mcptest.PythonServer(t, mcptest.PythonSDK1, "mcp-server-sqlite"), "--db-path", filepath.Join(t.TempDir(), "db")}}
		}, walk: []walkCall{
			{"create_table", `{"query":"CREATE TABLE IF NOT EXISTS t (a INT)"}`, refused},
			{"list_tables", `{}`, `"type":"text"`},
			{"create_table", `{"query":"CREATE TABLE IF NOT EXISTS t (a INT)"}`, "Table created successfully"},
		}},
	{name: "time", asTyped: "uvx mcp-server-time", pinned: "mcp-server-time",
		start: func(t *testing.T) target {
			return target{argv: []string{mcptest.PythonServer(t, mcptest.PythonSDK2, "mcp-server-time")}}
		}, walk: []walkCall{
			{"convert_time", `{"source_timezone":"Asia/Tokyo","time":"12:00","target_timezone":"Etc/UTC"}`, refused},
			{"get_current_time", `{"timezone":"Asia/Tokyo"}`, "Asia/Tokyo"},
			{"convert_time", `{"source_timezone":"Asia/Tokyo","time":"12:00","target_timezone":"Etc/UTC"}`, "-9.0h"},
		}},
	{name: "fetch", asTyped: "uvx mcp-server-fetch   # with --allow-private-ips here, as the page is on this machine", pinned: "mcp-server-fetch",
		start: fetchServer, walk: []walkCall{
			{"fetch", `{"url":"{{url}}/page"}`, "a page of this machine"},
			{"fetch", `{"url":"{{url}}/page"}`, "a page of this machine"},
			{"fetch", `{"url":"{{url}}/page"}`, refused},
		}},
	{name: "kubernetes", asTyped: "npx -y kubernetes-mcp-server   # its own error: there is no cluster", pinned: "kubernetes-mcp-server",
		start: kubernetes, open: "configuration_view: {on_success: destructive, on_unknown: stay}", walk: []walkCall{
			{"pods_delete", `{"name":"one"}`, refused},
			{"configuration_view", `{}`, "kind: Config"},
			{"pods_delete", `{"name":"one"}`, "failed to delete pod"}, // there is no cluster
		}},
	{name: "notion", asTyped: "npx -y @notionhq/notion-mcp-server   # a web server of this machine stands for Notion's", pinned: "@notionhq/notion-mcp-server",
		start: notion, open: "API-get-self: {on_success: destructive, on_unknown: stay}", walk: []walkCall{
			{"API-delete-a-block", `{"block_id":"b"}`, refused},
			{"API-get-self", `{}`, "a page of this machine"},
			{"API-delete-a-block", `{"block_id":"b"}`, "a page of this machine"},
		}},
	{name: "playwright", asTyped: "npx -y @playwright/mcp --headless --isolated   # a page, or its own error: no browser is installed", pinned: "@playwright/mcp",
		start: func(t *testing.T) target { return target{argv: mcptest.Playwright(t)} },
		open:  "browser_snapshot: {on_any: destructive}", walk: []walkCall{
			{"browser_navigate", `{"url":"about:blank"}`, refused},
			{"browser_snapshot", `{}`, "###"},
			{"browser_navigate", `{"url":"about:blank"}`, "###"}, // a page, or that no browser is installed
		}},
}

func gitServer(t *testing.T) target {
	folder := t.TempDir()
	if out, err := exec.Command("git", "init", "--quiet", folder).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	for _, args := range [][]string{{"config", "user.name", "a"}, {"config", "user.email", "a@localhost"}, {"commit", "--quiet", "--allow-empty", "-m", "first"}} {
		if out, err := exec.Command("git", append([]string{"-C", folder}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	return target{argv: []string{mcptest.PythonServer(t, mcptest.PythonSDK2, "mcp-server-git")}, folder: folder}
}

// page is a web server of the test's own. It stands for the web, and for Notion's.
func page(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"object":"a page of this machine"}`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func fetchServer(t *testing.T) target {
	return target{argv: []string{mcptest.PythonServer(t, mcptest.PythonSDK2, "mcp-server-fetch"), "--allow-private-ips"}, page: page(t)}
}

func notion(t *testing.T) target {
	return target{argv: []string{mcptest.Node(t), mcptest.NodePackage(t, "@notionhq/notion-mcp-server")},
		env: []string{"NOTION_TOKEN=none", "BASE_URL=" + page(t)}}
}

// kubernetes knows of a cluster that is not there.
func kubernetes(t *testing.T) target {
	config := filepath.Join(t.TempDir(), "config")
	err := os.WriteFile(config, []byte(`{apiVersion: v1, kind: Config, current-context: none, users: [{name: nobody, user: {}}],
  clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}], contexts: [{name: none, context: {cluster: none, user: nobody}}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return target{argv: []string{mcptest.Node(t), mcptest.NodePackage(t, "kubernetes-mcp-server")}, env: []string{"KUBECONFIG=" + config}}
}

// walkers are the clients that walk, by their names in the matrix. The first one walks with every server, all of them
// with those of walkedByAll.
var (
	walkers     = []string{"Python SDK 2.x", "Python SDK 1.x", "FastMCP 2", "FastMCP 4", "TypeScript SDK 1.x", "TypeScript SDK 2.x legacy"}
	walkedByAll = map[string]bool{"filesystem": true, "git": true}
)

// clientsOf are the walkers with a server.
func (w wrapped) clientsOf() []string {
	if walkedByAll[w.name] {
		return walkers
	}
	return walkers[:1]
}

// The table of docs/clients.md has the walks that TestWalks makes, with the versions that `make deps` installs.
func TestDocumentedWalks(t *testing.T) {
	const file = "../../../docs/clients.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := walkTable(t)
	table := regexp.MustCompile("(?m)^```sh\nnpx -y @modelcontextprotocol/server-filesystem DIR\n(?:[^`].*\n)*```\n\n(?:\\|.*\n)*")
	found := table.Find(text)
	switch {
	case found == nil:
		t.Errorf("%s has no table of walks; it is:\n%s", file, want)
	case golden.Updating():
		golden.Write(t, file, table.ReplaceAllLiteral(text, []byte(want)))
	case string(found) != want:
		t.Errorf("the table of walks in %s differs (run with -update and review the diff); it is:\n%s", file, want)
	}
}

// walkTable is how the servers are started, and a table of the walks.
func walkTable(t *testing.T) string {
	versions := pinnedVersions(t)
	var started, table strings.Builder
	for _, w := range wrappedServers {
		version, ok := versions[w.pinned]
		if !ok {
			t.Fatalf("no file pins %s", w.pinned)
		}
		started.WriteString(w.asTyped + "\n")
		refusedTool, step, allowed := w.order()
		fmt.Fprintf(&table, "| `%s` %s | `%s` | `%s` | `%s` | %s |\n", w.pinned, version, refusedTool, step, allowed,
			strings.ReplaceAll(strings.Join(w.clientsOf(), ", "), " legacy", ""))
	}
	return "```sh\n" + started.String() + "```\n\n| server | refused | the step | allowed | clients, each over stdio and HTTP |\n|---|---|---|---|---|\n" + table.String()
}

// order are the tools that are refused, a step, and allowed, in whatever order they are called.
func (w wrapped) order() (refusedTool, step, allowed string) {
	for _, call := range w.walk {
		switch {
		case call.says == refused:
			refusedTool = call.tool
		case step == "":
			step = call.tool
		default:
			allowed = call.tool
		}
	}
	return refusedTool, step, allowed
}

var pin = regexp.MustCompile(`(?m)^([a-z0-9-]+)(?:\[[a-z]+\])?==(\S+)$`)

// pinnedVersions are those of package.json and of the files beside the Python clients.
func pinnedVersions(t *testing.T) map[string]string {
	var read struct{ Dependencies map[string]string }
	manifest, err := os.ReadFile(mcptest.NodeScript("package.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(manifest, &read); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mcp1.in", "mcp2.in"} {
		text, err := os.ReadFile(mcptest.PythonScript(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pin.FindAllSubmatch(text, -1) {
			read.Dependencies[string(m[1])] = string(m[2])
		}
	}
	return read.Dependencies
}
