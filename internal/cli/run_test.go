package cli

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// What a client reads on standard output is the protocol and nothing else, even
// while everything is logged.
func TestStdoutIsOnlyProtocol(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "quiet")
	path := mcptest.WritePolicy(t, plainPolicy)
	s, p := mcptest.Dial(t, append([]string{mcptest.Proxy(t), "run", "--policy", path, "--log-level", "trace", "--"}, u.Command()...)...)
	s.Initialize()
	s.Tool("work", "")
	s.Tool("nothing", "")
	s.Close()
	for _, m := range s.Received() {
		if !m.IsResponse() && m.Method == "" {
			t.Errorf("standard output has %q", m.Raw)
		}
	}
	p.Log().Await(t, "refused")
}

// The end of standard input, SIGINT and SIGTERM end the proxy with 0, and the
// wrapped server with all that it started.
func TestEnds(t *testing.T) {
	ends := map[string]func(*mcptest.Session, *mcptest.Process){
		"stdin":   func(s *mcptest.Session, _ *mcptest.Process) { s.Close() },
		"SIGINT":  func(_ *mcptest.Session, p *mcptest.Process) { _ = p.Process.Signal(os.Interrupt) },
		"SIGTERM": func(_ *mcptest.Session, p *mcptest.Process) { _ = p.Process.Signal(syscall.SIGTERM) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := mcptest.Stdio(t, "stubborn")
			path := mcptest.WritePolicy(t, strings.ReplaceAll(plainPolicy, "work", "spawn"))
			s, p := mcptest.Dial(t, mcptest.RunStdio(t, path, u.Command()...)...)
			s.Initialize()
			s.Tool("spawn", "")
			end(s, p)
			if code := p.ExitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			u.AwaitLive(t, 0)
		})
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "quiet")
	token := write(t, "token", "s3cret\n")
	path := mcptest.WritePolicy(t, plainPolicy)
	url, p := mcptest.Listen(t, append([]string{"--policy", path, "--bearer-file", token, "--"}, u.Command()...)...)
	p.Log().Await(t, "url="+url)
	if code := post(t, url, ""); code != http.StatusUnauthorized {
		t.Errorf("without a token: HTTP %d", code)
	}
	if code := post(t, url, "s3cret"); code != http.StatusOK {
		t.Errorf("with the token: HTTP %d", code)
	}
	_ = p.Process.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	u.AwaitLive(t, 0)
	if strings.Contains(p.Log().String(), "s3cret") {
		t.Error("the token is in the log")
	}
}

// post sends initialize and returns the HTTP status.
func post(t *testing.T, url, token string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), mcptest.Patience)
	defer cancel()
	body := mcptest.Request(1, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// What a process needs to share a database is said before anything is read.
func TestPeerFlags(t *testing.T) {
	t.Parallel()
	const database = "postgres://db.internal/runs"
	for flags, says := range map[string]string{
		"--peer-listen :9902 --advertise a:9902 --listen 127.0.0.1:0":                     "give --store postgres://HOST/DATABASE",
		"--peer-listen :9902 --advertise a:9902 --listen 127.0.0.1:0 --store memory":      "give --store postgres://HOST/DATABASE",
		"--peer-listen :9902 --advertise a:9902 --listen 127.0.0.1:0 --store sqlite:r.db": "give --store postgres://HOST/DATABASE",
		"--advertise a:9902 --listen 127.0.0.1:0 --store " + database:                     "give '--peer-listen ADDR'",
		"--peer-listen :9902 --advertise a:9902 --store " + database:                      "--peer-listen needs --listen",
		"--peer-listen :9902 --listen 127.0.0.1:0 --store " + database:                    "give --advertise HOST:PORT",
		"--peer-listen 9902 --listen 127.0.0.1:0 --store " + database:                     "write it like :9902",
		"--peer-listen :9902 --advertise :9902 --listen 127.0.0.1:0 --store " + database:  "write it like gateway-0:9902",
	} {
		r := command(t, nil, slices.Concat([]string{"run", "--policy", "there-is-none.yaml", "--upstream", "http://127.0.0.1:1/mcp"}, strings.Fields(flags))...)
		oneLine(t, r.stderr, says)
		if r.code != 2 {
			t.Errorf("%s: %d", flags, r.code)
		}
	}
}

// Every flag has an environment variable, and the flag wins.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "quiet")
	path := mcptest.WritePolicy(t, plainPolicy)
	env := []string{"FSM_PROXY_POLICY=" + path, "FSM_PROXY_LOG_FORMAT=json", "FSM_PROXY_NO_HINT=true", "FSM_PROXY_UPSTREAM=http://127.0.0.1:1/mcp"}
	s, p := mcptest.DialIn(t, env, append([]string{mcptest.Proxy(t), "run", "--log-format", "text", "--"}, u.Command()...)...)
	if hello := s.Initialize(); strings.Contains(hello.String(), "Tools appear and disappear") {
		t.Errorf("FSM_PROXY_NO_HINT was not read: %s", hello)
	}
	s.Close()
	p.Log().Await(t, "[INFO]")
}

// A variable that has no meaning beside what the command line says is no error.
func TestEnvironmentBesideTheCommandLine(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "quiet")
	path := mcptest.WritePolicy(t, plainPolicy)
	env := []string{"FSM_PROXY_UPSTREAM_HEADER=A: b", "FSM_PROXY_BEARER_FILE=" + path, "FSM_PROXY_UPSTREAM_SSE=true"}
	s, _ := mcptest.DialIn(t, env, mcptest.RunStdio(t, path, u.Command()...)...)
	if answer := s.Initialize(); answer.Error != nil {
		t.Errorf("initialize was answered %s", answer)
	}
	if r := command(t, env, "check", path); r.code != 0 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	_, url := mcptest.HTTP(t, mcptest.Script{Tools: map[string]func(*mcptest.Exchange){"work": nil}}.Server())
	if r := command(t, []string{"FSM_PROXY_ENV=A=b", "FSM_PROXY_PASS_ENV=C"}, "init", "--upstream", url); r.code != 0 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

// A variable that may hold several values takes one from each line.
func TestEnvironmentOfRepeatedFlags(t *testing.T) {
	t.Parallel()
	u, url := mcptest.HTTP(t, mcptest.Script{Tools: map[string]func(*mcptest.Exchange){"work": nil}}.Server())
	env := []string{"FSM_PROXY_UPSTREAM_HEADER=X-One: 1\nX-Two: a, b"}
	r := command(t, env, "init", "--upstream", url)
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.stderr)
	}
	if u.Count("tools/list") == 0 {
		t.Error("nothing was listed")
	}
	r = command(t, []string{"FSM_PROXY_UPSTREAM_HEADER=X-One: 1\nsecret"}, "init", "--upstream", url)
	oneLine(t, r.stderr, "number 2", "'Name: value'")
	if strings.Contains(r.stderr, "secret") {
		t.Error("the header's value is repeated")
	}
}

// Wrapping on stdio changes nothing of the server's environment but the proxy's
// own variables; a listening proxy hands on what it is told to.
func TestEnvironmentOfTheServer(t *testing.T) {
	t.Setenv("SOME_VARIABLE", "some-value")
	t.Setenv("OTHER_VARIABLE", "other-value")
	t.Setenv("FSM_PROXY_CALL_TIMEOUT", "1m")
	path := mcptest.WritePolicy(t, "version: 1\ninitial: open\nstates:\n  open:\n    tools:\n      get-env:\n")

	s, _ := mcptest.Dial(t, mcptest.RunStdio(t, path, mcptest.Everything(t)...)...)
	s.Initialize()
	got := s.Tool("get-env", "{}").String()
	contains(t, got, "some-value")
	if strings.Contains(got, "FSM_PROXY_") {
		t.Error("the server has the proxy's own variables")
	}

	url, _ := mcptest.Listen(t, append([]string{"--policy", path, "--pass-env", "SOME_VARIABLE", "--env", "NEW_VARIABLE=new-value", "--"}, mcptest.Everything(t)...)...)
	web, _ := mcptest.DialWeb(t, url)
	web.Initialize()
	got = web.Tool("get-env", "{}").String()
	contains(t, got, "some-value")
	contains(t, got, "new-value")
	if strings.Contains(got, "other-value") {
		t.Error("the server of a listening proxy has a variable that nobody named")
	}
}

// TestTokenFileThatIsEmptied shows that the log says which token is in force: an
// emptied file takes nothing away, another token does.
func TestTokenFileThatIsEmptied(t *testing.T) {
	t.Parallel()
	token := write(t, "token", "first-secret")
	u := mcptest.Stdio(t, "quiet")
	url, p := mcptest.Listen(t, append([]string{"--policy", mcptest.WritePolicy(t, plainPolicy), "--bearer-file", token, "--"}, u.Command()...)...)
	asked := func(with, line string) {
		t.Helper()
		mcptest.Await(t, line, func() bool { post(t, url, with); return strings.Contains(p.Log().String(), line) })
	}
	replace(t, token, "\n")
	asked("wrong", "a token file cannot be read: the last token stays in force")
	p.Log().Await(t, "flag=--bearer-file file="+token)
	if code := post(t, url, "first-secret"); code != http.StatusOK {
		t.Errorf("the last token, while the file is empty: HTTP %d", code)
	}
	replace(t, token, "second-secret")
	asked("wrong", "a token file was read again")
	if code := post(t, url, "first-secret"); code != http.StatusUnauthorized {
		t.Errorf("the old token: HTTP %d", code)
	}
	if n := strings.Count(p.Log().String(), "a token file cannot be read"); n != 1 {
		t.Errorf("the empty file is logged %d times", n)
	}
	if strings.Contains(p.Log().String(), "-secret") {
		t.Error("a token is in the log")
	}
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	next := filepath.Join(filepath.Dir(path), "next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	r := command(t, nil, "version")
	oneLine(t, r.stdout, "fsm-proxy ")
	if r.code != 0 {
		t.Errorf("exit code %d", r.code)
	}
}

func TestSchemaIsTheCheckedInOne(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(filepath.Join(mcptest.Root(), "policy", "policy.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	r := command(t, nil, "schema")
	if strings.TrimSpace(r.stdout) != strings.TrimSpace(string(want)) {
		t.Error("schema prints something else than policy/policy.schema.json")
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	path := filepath.Join(mcptest.Root(), "policies", "crossroads.yaml")
	for format, word := range map[string]string{"text": "door_left", "mermaid": "stateDiagram", "dot": "digraph", "json": `"door_left"`} {
		r := command(t, nil, "render", path, "--format", format)
		if r.code != 0 || r.stderr != "" {
			t.Errorf("%s: exit code %d, %s", format, r.code, r.stderr)
		}
		contains(t, r.stdout, word)
	}
}

// --state draws some of the states, with what is bound everywhere.
func TestRenderOneState(t *testing.T) {
	t.Parallel()
	path := write(t, "p.yaml", "version: 1\ninitial: a\neverywhere: {tools: [look]}\nstates:\n  a: {tools: {go: {on_any: b}}}\n"+
		"  b: {tools: {back: {on_any: a}}}\n  c: {everywhere: false, tools: {out: {on_any: a}}}\n")
	r := command(t, nil, "render", path, "--state", "b")
	if r.code != 0 || strings.Contains(r.stdout, "go") || !strings.Contains(r.stdout, "back") || !strings.Contains(r.stdout, "look") {
		t.Errorf("b: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	r = command(t, nil, "render", path, "--state", "c", "--state", "c")
	if r.code != 0 || strings.Contains(r.stdout, "look") || strings.Count(r.stdout, "out") != 1 {
		t.Errorf("c, which takes nothing of everywhere: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r = command(t, nil, "render", path, "--state", "d"); r.code != exit.Usage || !strings.Contains(r.stderr, `the states are "a", "b" or "c"`) {
		t.Errorf("d: exit code %d\n%s", r.code, r.stderr)
	}
	if r = command(t, nil, "render", path, "--state", "b", "--format", "json"); r.code != exit.Usage {
		t.Errorf("as JSON: exit code %d\n%s", r.code, r.stderr)
	}
}

// check goes on with the other files, and says of each how it stands.
func TestCheckSeveralFiles(t *testing.T) {
	t.Parallel()
	good := write(t, "good.yaml", plainPolicy)
	trap := write(t, "trap.yaml", "version: 1\ninitial: a\nstates:\n  a: {tools: {x: {on_any: b}}}\n  b:\n")
	r := command(t, nil, "check", good, "no.yaml", trap)
	if r.code != 1 {
		t.Errorf("exit code %d", r.code)
	}
	contains(t, r.stdout, good+": ok, 1 state\n")
	contains(t, r.stdout, trap+": ok, 2 states, 1 warning\n")
	contains(t, r.stderr, "no.yaml")
	for flag, code := range map[string]int{"--strict=false": 0, "--strict": 1} {
		if r := command(t, nil, "check", trap, flag); r.code != code {
			t.Errorf("%s: exit code %d, want %d", flag, r.code, code)
		}
	}
}

func TestCheckAgainstAServer(t *testing.T) {
	t.Parallel()
	path := write(t, "p.yaml", "version: 1\ninitial: a\nstates:\n  a:\n    tools:\n      open_dor:\n      press_button:\n")
	r := command(t, nil, "check", path, "--", mcptest.Proxy(t), "crossroads")
	if r.code != 1 {
		t.Errorf("exit code %d", r.code)
	}
	contains(t, r.stdout, fmt.Sprintf("%s:6:7: error: ", path))
	contains(t, r.stdout, `"open_dor"`)
	contains(t, r.stdout, "go_back")
}
