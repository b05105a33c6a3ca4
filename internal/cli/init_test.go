package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

// liveServers are the arguments that name each server to wrap.
func liveServers(t *testing.T) map[string][]string {
	t.Helper()
	return map[string][]string{
		"filesystem":          append([]string{"--"}, mcptest.Filesystem(t, t.TempDir())...),
		"memory":              append([]string{"--"}, mcptest.Memory(t)...),
		"sequential-thinking": append([]string{"--"}, mcptest.SequentialThinking(t)...),
		"everything":          append([]string{"--"}, mcptest.Everything(t)...),
		"everything by HTTP":  {"--upstream", mcptest.EverythingHTTP(t)},
		"everything by SSE":   {"--upstream", mcptest.EverythingSSE(t), "--upstream-sse"},
		"conformance":         {"--upstream", mcptest.ConformanceHTTP(t)},
		"crossroads":          {"--", mcptest.Proxy(t), "crossroads"},
	}
}

// What init writes passes check against the same server, warnings counted as
// errors.
func TestInitPassesCheck(t *testing.T) {
	for name, server := range liveServers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "policy.yaml")
			if r := command(t, nil, append([]string{"init", "-o", path}, server...)...); r.code != 0 || r.stdout != "" {
				t.Fatalf("init: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			if r := command(t, nil, append([]string{"check", "--strict", path}, server...)...); r.code != 0 {
				t.Errorf("check: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
			}
		})
	}
}

// server-everything shows some tools only to clients that can do everything, and
// only some time after initialize.
func TestInitSeesWhatServersShowToCapableClients(t *testing.T) {
	t.Parallel()
	r := command(t, nil, append([]string{"init", "--"}, mcptest.Everything(t)...)...)
	p, findings := report.Parse("stdout", []byte(r.stdout))
	if err := findings.Err(); err != nil {
		t.Fatalf("standard output is no policy: %v\n%s", err, r.stdout)
	}
	for _, tool := range []string{"echo", "get-roots-list", "trigger-sampling-request", "trigger-elicitation-request"} {
		if p.BoundIn(policy.Tool, tool, false) == nil {
			t.Errorf("%s is not bound by its name", tool)
		}
	}
	everywhere, _, _ := strings.Cut(r.stdout, "\nstates:")
	contains(t, everywhere, "\n    get-env: stay ")
}

// What a server answers in place of a list is shown, without what could steer a terminal.
func TestInitSaysWhyAServerListsNothing(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "drifting")
	r := command(t, nil, append(append([]string{"init", "--"}, u.Command()...), "/no-such-file-\x1b[2J")...)
	_, said, _ := strings.Cut(r.stderr, "reading tools/list: the upstream answered with error -32603: ")
	if r.code != exit.Failed || strings.Contains(said, "\x1b") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	contains(t, said, "\"open /no-such-file-")
}

// A draft is of use at once: what reads and writes reaches the server, and what is
// destructive is refused with a text that says what to do. Once the way is opened
// as the end of the file tells, it takes the step in front.
func TestInitDraftForbidsWhatIsDestructive(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "memory.yaml")
	memory := mcptest.Memory(t)
	server := append([]string{"--"}, memory...)
	r := command(t, nil, append([]string{"init", "-o", path}, server...)...)
	contains(t, r.stderr, "  forbidden   3 destructive tools: delete_entities, delete_observations, delete_relations\n")
	begin := func() *mcptest.Session {
		s, _ := mcptest.Dial(t, mcptest.RunStdio(t, path, memory...)...)
		s.Initialize()
		return s
	}
	s := begin()
	const remove = `{"entityNames": ["ada"]}`
	answers(t, s.Tool("create_entities", `{"entities": [{"name": "ada", "entityType": "person", "observations": []}]}`), "ada")
	answers(t, s.Tool("read_graph", "{}"), "ada")
	answers(t, s.Tool("delete_entities", remove), "Destructive tools are closed; if you need one, tell the user.")
	s.Close()

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	open := strings.Replace(string(text), "    read_graph: stay  ", "    read_graph: {on_success: destructive, on_unknown: stay}  ", 1)
	above, below, _ := strings.Cut(open, "  # destructive:")
	if err := os.WriteFile(path, []byte(above+"  destructive:"+strings.ReplaceAll(below, "\n  # ", "\n  ")), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := command(t, nil, append([]string{"check", "--strict", path}, server...)...); r.code != 0 {
		t.Fatalf("check of the opened draft: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	s = begin()
	answers(t, s.Tool("delete_entities", remove), "not allowed in state 'working'")
	answers(t, s.Tool("read_graph", "{}"), "entities")
	answers(t, s.Tool("create_entities", `{"entities": []}`), "entities")
	answers(t, s.Tool("delete_entities", remove), "deleted")
	answers(t, s.Tool("delete_entities", remove), "not allowed in state 'working'")
}

// answers fails unless an answer has a text.
func answers(t *testing.T, m mcptest.Message, text string) {
	t.Helper()
	contains(t, string(m.Raw), text)
}

// Without -o the policy alone goes to standard output, and what to do next to
// standard error, with paths that hold in any folder.
func TestInitSaysWhatToDoNext(t *testing.T) {
	t.Parallel()
	self := mcptest.Proxy(t)
	r := command(t, nil, "init", "--", self, "crossroads")
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.stderr)
	}
	if _, findings := report.Parse("stdout", []byte(r.stdout)); findings.Err() != nil {
		t.Errorf("standard output is no policy: %v", findings.Err())
	}
	contains(t, r.stderr, self+" check /")
	var snippet struct {
		Servers map[string]struct {
			Command string
			Args    []string
		} `json:"mcpServers"`
	}
	begin, end := strings.IndexByte(r.stderr, '{'), strings.LastIndexByte(r.stderr, '}')
	if err := json.Unmarshal([]byte(r.stderr[begin:end+1]), &snippet); err != nil {
		t.Fatalf("the snippet is no JSON: %v\n%s", err, r.stderr)
	}
	entry := snippet.Servers["crossroads"]
	if entry.Command != self || !filepath.IsAbs(entry.Args[2]) || entry.Args[4] != self {
		t.Errorf("the snippet has a path that is not absolute: %+v", entry)
	}
}

func TestInitOverwritesOnlyWithForce(t *testing.T) {
	t.Parallel()
	path := write(t, "mine.yaml", "mine")
	server := []string{"--", mcptest.Proxy(t), "crossroads"}
	if r := command(t, nil, append([]string{"init", "-o", path}, server...)...); r.code != 1 {
		t.Errorf("exit code %d, want 1", r.code)
	}
	if text, _ := os.ReadFile(path); string(text) != "mine" {
		t.Errorf("the file was overwritten with %q", text)
	}
	if r := command(t, nil, append([]string{"init", "-o", path, "--force"}, server...)...); r.code != 0 {
		t.Errorf("with --force: exit code %d\n%s", r.code, r.stderr)
	}
	if text, _ := os.ReadFile(path); !strings.Contains(string(text), "press_button:") {
		t.Errorf("the file was not overwritten: %q", text)
	}
}

// A file that exists is reported before the server is started.
func TestInitLooksAtTheFileFirst(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "quiet")
	path := write(t, "mine.yaml", "mine")
	command(t, nil, append([]string{"init", "-o", path, "--"}, u.Command()...)...)
	if n := u.Started(); n != 0 {
		t.Errorf("the server was started %d times", n)
	}
}

func TestPortableMakesPathsAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir("data", 0o700); err != nil {
		t.Fatal(err)
	}
	got := portable([]string{"no-such-program", "-y", "@scope/server", "data", "./data", "no-such-file"})
	want := []string{"no-such-program", "-y", "@scope/server", filepath.Join(dir, "data"), filepath.Join(dir, "data"), "no-such-file"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What init advises reaches the server by the flags that init itself was given.
func TestAdviceNamesTheSameServer(t *testing.T) {
	given := []string{"--upstream", "https://example.com/mcp", "--upstream-sse", "--upstream-oauth-client-id", "me",
		"--upstream-oauth-client-secret-file", "/s", "--upstream-oauth-metadata-url", "https://example.com/as",
		"--upstream-oauth-scope", "a", "--upstream-oauth-scope", "b"}
	var server serverFlags
	flags := pflag.NewFlagSet("init", pflag.ContinueOnError)
	server.register(flags, "The server")
	if err := flags.Parse(given); err != nil {
		t.Fatal(err)
	}
	if got := serverArgs(&server.Server); !slices.Equal(got, given) {
		t.Errorf("got  %q\nwant %q", got, given)
	}
}

func TestShellLine(t *testing.T) {
	got := host.ShellLine([]string{"/bin/a b", "--x=1", "it's", "$HOME", ""})
	if want := `'/bin/a b' --x=1 'it'\''s' '$HOME' ''`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
