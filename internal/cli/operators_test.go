//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// fetch asks a listener for operators under a Host. What changes something goes as JSON.
func fetch(t *testing.T, method, url, host, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	if method != http.MethodGet {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// operated starts a proxy over HTTP with both listeners for operators.
func operated(t *testing.T, path string, more ...string) (url, health, admin string, p *mcptest.Process) {
	t.Helper()
	health, admin = mcptest.FreeAddress(t), mcptest.FreeAddress(t)
	args := append([]string{"--policy", path, "--reload-debounce", "5ms", "--health", health, "--admin", admin}, more...)
	url, p = mcptest.Listen(t, args...)
	p.Log().Await(t, "serving: url=") // connecting works a moment earlier, and is no sign that the proxy knows of it
	return url, "http://" + health, "http://" + admin, p
}

func TestOperators(t *testing.T) {
	t.Parallel()
	_, upstream := mcptest.HTTP(t, quiet)
	url, health, adminURL, p := operated(t, write(t, "p.yaml", plainPolicy), "--upstream", upstream)
	for _, probe := range []string{"/livez", "/readyz", "/startupz", "/metrics"} {
		if status, said := fetch(t, "GET", health+probe, "localhost", ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", probe, status, said)
		}
	}
	s, web := mcptest.DialWeb(t, url)
	s.Initialize()

	_, sessions := fetch(t, "GET", adminURL+"/v1/sessions", "localhost", "")
	contains(t, sessions, `"state": "open"`)
	contains(t, sessions, `"client_version": "`)
	_, runs := fetch(t, "GET", adminURL+"/v1/runs", "localhost", "")
	contains(t, runs, `"complete": false`)
	_, metrics := fetch(t, "GET", health+"/metrics", "localhost", "")
	_, routines := fetch(t, "GET", adminURL+"/debug/pprof/goroutine?debug=2", "localhost", "")
	if id := web.ID(); strings.Contains(sessions+runs+metrics+routines+p.Log().String(), id) {
		t.Error("a session id is told in clear")
	}
	if status, _ := fetch(t, "GET", health+"/v1/sessions", "localhost", ""); status != http.StatusNotFound {
		t.Errorf("probers are told of sessions: %d", status)
	}
	for _, page := range [][]string{{"evil.example"}, {"localhost", "Origin", "http://evil.example"}, {"localhost", "Origin", "null"}, {"localhost", "Sec-Fetch-Site", "cross-site"}} {
		for method, path := range map[string]string{"GET": "/v1/policy", "POST": "/v1/runs/migrate", "PUT": "/v1/log-level"} {
			if status, _ := fetch(t, method, adminURL+path, page[0], `{"level":"off"}`, page[1:]...); status != http.StatusForbidden {
				t.Errorf("%s %s by %v: %d", method, path, page, status)
			}
		}
	}
}

// The level that an operator asks for holds from then on.
func TestOperatorsChangeTheLogsLevel(t *testing.T) {
	t.Parallel()
	_, upstream := mcptest.HTTP(t, quiet)
	url, _, adminURL, p := operated(t, write(t, "p.yaml", plainPolicy), "--upstream", upstream)
	visit := func() {
		s, web := mcptest.DialWeb(t, url)
		s.Initialize()
		web.Delete()
	}
	const debug = "revision=2025"
	level := func(level string) {
		t.Helper()
		if status, said := fetch(t, "PUT", adminURL+"/v1/log-level", "localhost", `{"level":"`+level+`"}`); status != http.StatusOK || !strings.Contains(said, level) {
			t.Errorf("%s: %d %s", level, status, said)
		}
		if _, said := fetch(t, "GET", adminURL+"/v1/log-level", "localhost", ""); !strings.Contains(said, level) {
			t.Errorf("%s was set, and is %s", level, said)
		}
	}
	visit()
	level("debug")
	p.Log().Await(t, "the log's level was changed")
	if strings.Contains(p.Log().String(), debug) {
		t.Error("debug lines before")
	}
	visit()
	p.Log().Await(t, debug)
	level("error")
	p.Log().Await(t, "level=error")
	before := strings.Count(p.Log().String(), debug)
	visit()
	level("info") // its line comes after all that the visit could have said
	p.Log().Await(t, "level=info")
	if strings.Count(p.Log().String(), debug) != before {
		t.Error("debug lines at error")
	}
	if status, said := fetch(t, "PUT", adminURL+"/v1/log-level", "localhost", `{"level":"loud"}`); status != http.StatusBadRequest || !strings.Contains(said, "one of trace") {
		t.Errorf("%d %s", status, said)
	}
}

// A policy with an error is told with its place, while the last good one stays.
func TestPolicyTellsOfBrokenReloads(t *testing.T) {
	t.Parallel()
	path := write(t, "p.yaml", plainPolicy)
	_, upstream := mcptest.HTTP(t, quiet)
	url, _, adminURL, p := operated(t, path, "--upstream", upstream)
	if in := policyOf(t, adminURL); in.Name != "plain" || in.File != path || in.LastReload != nil || in.Mode != "enforce" || in.LoadedAt.IsZero() {
		t.Errorf("at the start: %+v", in)
	}
	replace(t, path, strings.ReplaceAll(plainPolicy, "initial: open", "initial: opne"))
	p.Log().Await(t, "the last good one stays in force")
	bad := policyOf(t, adminURL)
	if bad.Failed != 1 || bad.LastReload == nil || bad.LastReload.Success || !strings.Contains(strings.Join(bad.LastReload.Errors, ""), path+":3:10: error:") {
		t.Errorf("after a bad policy: %+v", bad)
	}
	s, _ := mcptest.DialWeb(t, url)
	s.Initialize()
	contains(t, string(s.Tool("work", "").Raw), `"result"`)
	replace(t, path, strings.ReplaceAll(plainPolicy, "open", "shut"))
	p.Log().Await(t, "the policy was reloaded")
	good := policyOf(t, adminURL)
	if good.Succeeded != 1 || good.Failed != 1 || !good.LastReload.Success || good.LastReload.Errors != nil || good.Digest == bad.Digest || !good.LoadedAt.After(bad.LoadedAt) {
		t.Errorf("after a good policy: %+v", good)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	p.Log().Await(t, "no such file")
	if gone := policyOf(t, adminURL); gone.Digest != good.Digest || gone.LastReload.Success || !strings.Contains(strings.Join(gone.LastReload.Errors, ""), path) {
		t.Errorf("after its end: %+v", gone)
	}
}

// So is a configuration with an error, and the metric counts both.
func TestPolicyTellsOfBrokenConfigurations(t *testing.T) {
	t.Parallel()
	_, upstream := mcptest.HTTP(t, quiet)
	text := "version: 1\nmode: shadow\nupstream: {url: \"" + upstream + "\"}\n"
	file := write(t, "fsm-proxy.yaml", text)
	_, health, adminURL, p := operated(t, write(t, "p.yaml", plainPolicy), "--config", file)
	if in := policyOf(t, adminURL); in.Mode != "shadow" || in.Configuration == nil || in.Configuration.File != file || in.Configuration.LastReload != nil {
		t.Errorf("at the start: %+v", in)
	}
	replace(t, file, strings.ReplaceAll(text, "shadow", "enfroce"))
	p.Log().Await(t, "the configuration was not reloaded")
	in := policyOf(t, adminURL)
	if c := in.Configuration; in.Mode != "shadow" || c.Failed != 1 || c.LastReload.Success || !strings.Contains(strings.Join(c.LastReload.Errors, ""), file+":2:7: error:") || in.LastReload != nil {
		t.Errorf("after a bad one: %+v", in)
	}
	_, metrics := fetch(t, "GET", health+"/metrics", "localhost", "")
	contains(t, metrics, `fsm_proxy_reloads_total{result="failure"} 1`)
	contains(t, metrics, "fsm_proxy_policy_last_reload_successful 0")
	replace(t, file, strings.ReplaceAll(text, "shadow", "enforce"))
	p.Log().Await(t, "the configuration was reloaded")
	if in := policyOf(t, adminURL); in.Mode != "enforce" || in.Configuration.Succeeded != 1 || !in.Configuration.LastReload.Success {
		t.Errorf("after a good one: %+v", in)
	}
	_, metrics = fetch(t, "GET", health+"/metrics", "localhost", "")
	contains(t, metrics, "fsm_proxy_policy_last_reload_successful 1")
}

// While calls come to their end the proxy is alive and not ready, and operators
// are answered.
func TestProbesOfAnEndingProxy(t *testing.T) {
	t.Parallel()
	u, upstream := mcptest.HTTP(t, mcptest.Script{Tools: map[string]func(*mcptest.Exchange){
		"work": func(e *mcptest.Exchange) { e.Gate("work"); e.Result(mcptest.Text("done")) },
	}}.Server())
	url, health, adminURL, p := operated(t, write(t, "p.yaml", plainPolicy), "--upstream", upstream)
	s, _ := mcptest.DialWeb(t, url)
	s.Initialize()
	id := s.Request("tools/call", mcptest.ToolParams("work", ""))
	u.Await(t, 1, "tools/call")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var said string
	mcptest.Await(t, "it is unready", func() bool {
		var status int
		status, said = fetch(t, "GET", health+"/readyz", "localhost", "")
		return status == http.StatusServiceUnavailable
	})
	contains(t, said, "[-] not ending")
	contains(t, said, "[+] upstream")
	for _, probe := range []string{"/livez", "/startupz", "/metrics"} {
		if status, said := fetch(t, "GET", health+probe, "localhost", ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", probe, status, said)
		}
	}
	_, sessions := fetch(t, "GET", adminURL+"/v1/sessions", "localhost", "")
	contains(t, sessions, `"in_flight": 1`)
	u.Open("work")
	answer, _ := s.Answer(id)
	contains(t, string(answer.Raw), "done")
	if code := p.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Clients of stranded runs are told when an operator has these begin anew.
func TestMigrateTellsClients(t *testing.T) {
	t.Parallel()
	path := write(t, "p.yaml", plainPolicy)
	_, upstream := mcptest.HTTP(t, quiet)
	url, _, adminURL, p := operated(t, path, "--upstream", upstream)
	s, web := mcptest.DialWeb(t, url)
	s.Initialize()
	defer web.Listen()()
	if got := tools(t, s); got != "work" {
		t.Fatalf("shown at first: %q", got)
	}
	replace(t, path, "version: 1\nstranded: refuse\n"+strings.ReplaceAll(strings.TrimPrefix(plainPolicy, "version: 1\n"), "open", "shut"))
	p.Log().Await(t, "the policy was reloaded")
	awaitChanged(t, s)
	if got := tools(t, s); got != "" {
		t.Errorf("shown when stranded: %q", got)
	}
	p.Log().Await(t, "/v1/runs/migrate': runs=1\n")
	_, runs := fetch(t, "GET", adminURL+"/v1/runs", "localhost", "")
	contains(t, runs, `"stranded_since": "`)
	contains(t, runs, `"refused": true`)
	if _, done := fetch(t, "POST", adminURL+"/v1/runs/migrate", "localhost", ""); !strings.Contains(done, `"restarted": 1`) {
		t.Errorf("migrated: %s", done)
	}
	awaitChanged(t, s)
	if got := tools(t, s); got != "work" {
		t.Errorf("shown after the migration: %q", got)
	}
	contains(t, string(s.Tool("work", "").Raw), `"result"`)
	_, runs = fetch(t, "GET", adminURL+"/v1/runs", "localhost", "")
	contains(t, runs, `"state": "shut"`)
	p.Log().Await(t, "as an operator asked")
}

// Beyond loopback the token decides, and a new one counts without a restart.
func TestAdminBearer(t *testing.T) {
	t.Parallel()
	token := write(t, "token", "first\n")
	admin := mcptest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(admin)
	_, upstream := mcptest.HTTP(t, quiet)
	_, p := mcptest.Listen(t, "--policy", write(t, "p.yaml", plainPolicy), "--upstream", upstream, "--admin", "0.0.0.0:"+port, "--admin-bearer-file", token)
	ask := func(header ...string) int {
		status, _ := fetch(t, "GET", "http://"+admin+"/v1/policy", "pod.example", "", header...)
		return status
	}
	for sent, want := range map[string]int{"": 401, "first": 401, "Bearer": 401, "Bearer second": 401, "Basic first": 401, "Bearer first": 200, "bearer first": 200} {
		if got := ask("Authorization", sent); got != want {
			t.Errorf("%q: %d", sent, got)
		}
	}
	if got := ask("Authorization", "Bearer first", "Origin", "http://evil.example"); got != http.StatusForbidden {
		t.Errorf("a web page that has the token: %d", got)
	}
	replace(t, token, "second\n")
	mcptest.Await(t, "the new token is read", func() bool { return ask("Authorization", "Bearer second") == http.StatusOK })
	if got := ask("Authorization", "Bearer first"); got != http.StatusUnauthorized {
		t.Errorf("the old token: %d", got)
	}
	if strings.Contains(p.Log().String(), "second") || strings.Contains(p.Log().String(), "first") {
		t.Error("the log tells the token")
	}
}

func policyOf(t *testing.T, adminURL string) (in admin.Policy) {
	t.Helper()
	_, text := fetch(t, "GET", adminURL+"/v1/policy", "localhost", "")
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return in
}

// A sidecar comes up before its server: it has started then, and is not ready,
// until the server takes connections.
func TestReadyWhenTheServerIs(t *testing.T) {
	t.Parallel()
	upstream := mcptest.FreeAddress(t)
	_, health, _, _ := operated(t, write(t, "p.yaml", plainPolicy), "--upstream", "http://"+upstream+"/mcp")
	if status, said := fetch(t, "GET", health+"/startupz", "localhost", ""); status != http.StatusOK {
		t.Errorf("started: %d %s", status, said)
	}
	status, said := fetch(t, "GET", health+"/readyz", "localhost", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(said, "[-] upstream: connecting to "+upstream) {
		t.Errorf("ready: %d %s", status, said)
	}
	l, err := net.Listen("tcp", upstream)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mcptest.Await(t, "it is ready", func() bool {
		status, _ := fetch(t, "GET", health+"/readyz", "localhost", "")
		return status == http.StatusOK
	})
}

// Operators of a stdio proxy are answered as well.
func TestOperatorsOfAStdioProxy(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	health := mcptest.FreeAddress(t)
	u := mcptest.Stdio(t, "quiet")
	args := mcptest.RunStdio(t, write(t, "p.yaml", plainPolicy), u.Command()...)
	s, p := mcptest.Dial(t, append([]string{args[0], args[1], "--health", health, "--admin", "unix:" + socket}, args[2:]...)...)
	s.Initialize()
	if status, said := fetch(t, "GET", "http://"+health+"/startupz", "localhost", ""); status != http.StatusOK {
		t.Errorf("started: %d %s", status, said)
	}
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	out, err := askAdmin(t, nil, "--admin", "unix:"+socket, "/v1/sessions")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, out, `"id": "stdio"`)
	s.Close()
	if code := p.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket was left behind")
	}
}

func TestOperatorsListenOrSayWhy(t *testing.T) {
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	folder := t.TempDir()
	live := filepath.Join(folder, "live.sock")
	listener, err := net.Listen("unix", live)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file := write(t, "file", "x")
	policy := write(t, "p.yaml", plainPolicy)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--health", held.Addr().String()}, 1, "--health " + held.Addr().String() + ": the port is taken"},
		{[]string{"--admin", held.Addr().String()}, 1, "--admin " + held.Addr().String() + ": the port is taken"},
		{[]string{"--health", "nowhere"}, 2, "write it like :9090"},
		{[]string{"--admin", "0.0.0.0:0"}, 2, "give a loopback address, unix:PATH, or --admin-bearer-file"},
		{[]string{"--listen", held.Addr().String()}, 1, "--listen " + held.Addr().String() + ": the port is taken"},
		{[]string{"--health", "192.0.2.1:1"}, 1, "choose another --health address"},
		{[]string{"--admin", ":0"}, 2, "give a loopback address, unix:PATH, or --admin-bearer-file"},
		{[]string{"--admin", "unix:@fsm-proxy"}, 2, "only a file has permissions"},
		{[]string{"--admin", "unix:"}, 2, "only a file has permissions"},
		{[]string{"--admin", "unix:" + live}, 1, "another process listens there"},
		{[]string{"--admin", "unix:" + file}, 1, "a file of another kind"},
		{[]string{"--admin", "unix:" + folder + "/none/a.sock"}, 1, "no such file or directory"},
		{[]string{"--admin-bearer-file", file}, 2, "belongs to --admin"},
		{[]string{"--admin", "127.0.0.1:0", "--admin-bearer-file", folder + "/none"}, 1, "reading --admin-bearer-file"},
	} {
		args := append([]string{"run", "--policy", policy, "--upstream", "http://127.0.0.1:1/mcp"}, c.args...)
		var said strings.Builder
		command := &console{args: args, in: strings.NewReader(""), out: io.Discard, err: &said}
		if code := command.execute(context.Background()); strings.Count(said.String(), "\n") != 1 || code != c.code || !strings.Contains(said.String(), c.says) {
			t.Errorf("%v: %d %s", c.args, code, said.String())
		}
	}
}
