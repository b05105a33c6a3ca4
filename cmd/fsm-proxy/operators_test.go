//go:build unix

package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// fetch asks a listener for operators, as somebody who calls it by a name of his
// own.
func fetch(t *testing.T, method, url, host, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
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
	return url, "http://" + health, "http://" + admin, p
}

func TestOperators(t *testing.T) {
	path := write(t, "p.yaml", plainPolicy)
	_, upstream := mcptest.HTTP(t, quiet)
	url, health, adminURL, p := operated(t, path, "--upstream", upstream)
	for _, probe := range []string{"/livez", "/readyz", "/startupz"} {
		if status, said := fetch(t, "GET", health+probe, "10.0.0.7", ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", probe, status, said)
		}
	}
	s, web := mcptest.DialWeb(t, url)
	s.Initialize()
	defer web.Listen()()

	_, sessions := fetch(t, "GET", adminURL+"/v1/sessions", "localhost", "")
	contains(t, sessions, `"state": "open"`)
	_, runs := fetch(t, "GET", adminURL+"/v1/runs", "localhost", "")
	contains(t, runs, `"complete": false`)
	if id := web.ID(); strings.Contains(sessions+runs+p.Log().String(), id) {
		t.Error("a session id is told in clear")
	}
	if status, _ := fetch(t, "GET", adminURL+"/v1/policy", "evil.example", ""); status != http.StatusForbidden {
		t.Errorf("a rebound name: %d", status)
	}

	if status, said := fetch(t, "PUT", adminURL+"/v1/log-level", "localhost", "debug"); status != http.StatusOK {
		t.Errorf("the log's level: %d %s", status, said)
	}
	replace(t, path, strings.ReplaceAll(plainPolicy, "initial: open", "initial: opne"))
	p.Log().Await(t, "the last good one stays in force")
	in := policyOf(t, adminURL)
	if in.Failed != 1 || in.LastReload == nil || in.LastReload.Success || !strings.Contains(strings.Join(in.LastReload.Errors, ""), "p.yaml:3:10: error:") {
		t.Errorf("after a bad policy: %+v", in)
	}
	replace(t, path, strings.ReplaceAll(plainPolicy, "open", "shut"))
	p.Log().Await(t, "the policy was reloaded")
	if now := policyOf(t, adminURL); now.Succeeded != 1 || !now.LastReload.Success || now.Digest == in.Digest {
		t.Errorf("after a good policy: %+v", now)
	}
	_, runs = fetch(t, "GET", adminURL+"/v1/runs", "localhost", "")
	contains(t, runs, `"stranded_since": "`)
	if _, done := fetch(t, "POST", adminURL+"/v1/runs/migrate", "localhost", ""); !strings.Contains(done, `"restarted": 1`) {
		t.Errorf("migrated: %s", done)
	}
	_, runs = fetch(t, "GET", adminURL+"/v1/runs", "localhost", "")
	contains(t, runs, `"state": "shut"`)
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
	upstream := mcptest.FreeAddress(t)
	_, health, _, _ := operated(t, write(t, "p.yaml", plainPolicy), "--upstream", "http://"+upstream+"/mcp")
	if status, said := fetch(t, "GET", health+"/startupz", "x", ""); status != http.StatusOK {
		t.Errorf("started: %d %s", status, said)
	}
	status, said := fetch(t, "GET", health+"/readyz", "x", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(said, "[-] upstream: connecting to "+upstream) {
		t.Errorf("ready: %d %s", status, said)
	}
	l, err := net.Listen("tcp", upstream)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for again := time.NewTicker(20 * time.Millisecond); ; <-again.C {
		if status, _ := fetch(t, "GET", health+"/readyz", "x", ""); status == http.StatusOK {
			again.Stop()
			return
		}
	}
}

// Operators of a stdio proxy are answered as well.
func TestOperatorsOfAStdioProxy(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	health := mcptest.FreeAddress(t)
	u := mcptest.Stdio(t, "quiet")
	args := mcptest.RunStdio(t, write(t, "p.yaml", plainPolicy), u.Command()...)
	s, p := mcptest.Dial(t, append([]string{args[0], args[1], "--health", health, "--admin", "unix:" + socket}, args[2:]...)...)
	s.Initialize()
	if status, said := fetch(t, "GET", "http://"+health+"/startupz", "x", ""); status != http.StatusOK {
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
		{[]string{"--admin", "0.0.0.0:0"}, 1, "give a loopback address, unix:PATH, or --admin-bearer-file"},
		{[]string{"--admin", "unix:" + live}, 1, "another process listens there"},
		{[]string{"--admin", "unix:" + file}, 1, "a file of another kind"},
		{[]string{"--admin", "unix:" + folder + "/none/a.sock"}, 1, "no such file or directory"},
		{[]string{"--admin-bearer-file", file}, 2, "belongs to --admin"},
		{[]string{"--admin", "127.0.0.1:0", "--admin-bearer-file", folder + "/none"}, 1, "reading --admin-bearer-file"},
	} {
		args := append([]string{"run", "--policy", policy, "--upstream", "http://127.0.0.1:1/mcp"}, c.args...)
		var said strings.Builder
		err := run(context.Background(), args, strings.NewReader(""), io.Discard, &said)
		if code := report(&said, err); code != c.code || !strings.Contains(said.String(), c.says) {
			t.Errorf("%v: %d %s", c.args, code, said.String())
		}
	}
}

// A socket that a killed proxy has left behind is in nobody's way.
func TestStaleAdminSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	again, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
