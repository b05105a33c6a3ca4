//go:build unix

package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// What a command behind --listen does not get is named once, and nothing of a value.
func TestWithheldVariablesAreNamed(t *testing.T) {
	for name, value := range map[string]string{
		"GITHUB_TOKEN": "s3cret", "DB": "s3cret", "HTTP_PROXY": "http://proxy.invalid:1", "https_proxy": "http://ann:s3cret@proxy.invalid:1",
		"SSL_CERT_FILE": "/ca-of-the-house.pem", "API_SERVICE_HOST": "10.0.0.1", "API_PORT_80_TCP": "tcp://10.0.0.1:80", "FSM_PROXY_CALL_TIMEOUT": "1m",
		"NAMED_KEY": "named-value", "A\x1b[2J": "s3cret",
	} {
		t.Setenv(name, value)
	}
	for i := range 300 {
		t.Setenv(fmt.Sprintf("Z%d", i), "s3cret")
	}
	policy := mcptest.WritePolicy(t, "version: 1\ninitial: open\nstates:\n  open:\n    tools:\n      get-env:\n")
	url, p := mcptest.Listen(t, append([]string{"--policy", policy, "--pass-env", "NAMED_KEY", "--"}, mcptest.Everything(t)...)...)
	for range 2 {
		s, _ := mcptest.DialWeb(t, url)
		s.Initialize()
		got := s.Tool("get-env", "{}").String()
		for _, want := range []string{"http://proxy.invalid:1", "/ca-of-the-house.pem", "named-value"} {
			contains(t, got, want)
		}
		if strings.Contains(got, "s3cret") {
			t.Error("the server has what it must not get")
		}
	}
	saysAll(t, p, "withheld=\"", "withheld=https_proxy", "holds a password")
	log := p.Log().String()
	if n := strings.Count(log, "GITHUB_TOKEN"); n != 1 {
		t.Errorf("GITHUB_TOKEN is named %d times", n)
	}
	contains(t, log, `name what it needs with --pass-env: withheld="`)
	contains(t, log, "\" others=3")
	contains(t, log, "holds a password")
	contains(t, log, "withheld=https_proxy")
	for _, never := range []string{"s3cret", "SERVICE_HOST", "80_TCP", "FSM_PROXY_", "\x1b", "NAMED_KEY", "HTTP_PROXY"} {
		if strings.Contains(log, never) {
			t.Errorf("the log has %q", never)
		}
	}
}

// A name of --pass-env that is misspelt, or not set, is told at the start.
func TestAbsentVariablesAreNamed(t *testing.T) {
	t.Setenv("WEATHER_API_KEY", "s3cret")
	policy := mcptest.WritePolicy(t, plainPolicy)
	_, p := mcptest.Listen(t, "--policy", policy, "--pass-env", "WEATHER_API_KEY,WEATHER_API_KYE", "--", "sh")
	p.Log().Await(t, "does not have, so the command does not get it: set it, or mend the name: absent=WEATHER_API_KYE\n")
}

// A server that lacks its key says so in the log, which names what was withheld; its
// client, who may be anybody, is told neither.
func TestServerThatLacksItsKey(t *testing.T) {
	t.Setenv("WEATHER_API_KEY", "s3cret")
	policy := mcptest.WritePolicy(t, plainPolicy)
	url, p := mcptest.Listen(t, "--policy", policy, "--", "sh", "-c", `echo "WEATHER_API_KEY is not set" >&2; exit 7`)
	s, _ := mcptest.DialWeb(t, url)
	answer := s.Call("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`).String()
	contains(t, answer, "exit status 7")
	if strings.Contains(answer, "WEATHER") {
		t.Errorf("the client is told: %s", answer)
	}
	p.Log().Await(t, "the upstream process ended before it answered")
	line := p.Log().String()
	line = line[strings.Index(line, "the upstream process ended before it answered"):]
	for _, want := range []string{"--pass-env", "exit status 7", `said="WEATHER_API_KEY is not set"`, `withheld="`, "WEATHER_API_KEY,"} {
		contains(t, line, want)
	}
}

// A proxy before a command that ends at once is not ready, once it has failed at its
// last starts, and ready again when it can be started, though nobody calls.
func TestReadinessOfACommandThatFails(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "quiet")
	works := filepath.Join(t.TempDir(), "works")
	server := append([]string{"sh", "-c", `echo "no database" >&2; test -e "$0" && exec "$@"; exit 9`, works}, u.Command()...)
	url, health, _, p := operated(t, mcptest.WritePolicy(t, plainPolicy), append([]string{"--"}, server...)...)
	ready := func() (bool, string) {
		status, said := fetch(t, "GET", health+"/readyz", "localhost", "")
		return status == http.StatusOK, said
	}
	if ok, said := ready(); !ok {
		t.Fatalf("before anybody has called: %s", said)
	}
	if code := post(t, url, ""); code != http.StatusOK {
		t.Errorf("HTTP %d", code)
	}
	var said string
	mcptest.Await(t, "unready", func() (ok bool) {
		ok, said = ready()
		return !ok
	})
	contains(t, said, "[-] upstream: the last 2 starts have failed: the upstream process ended with exit status 9;")
	if strings.Contains(said, "database") {
		t.Errorf("a prober is told what the server said: %s", said)
	}
	if err := os.WriteFile(works, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mcptest.Await(t, "ready again", func() bool {
		ok, _ := ready()
		return ok
	})
	p.Log().Await(t, "the upstream process starts again")
	u.AwaitLive(t, 0)
}

// How many processes there may be is said at the start, and what to do in the refusal.
func TestProcessesAreBounded(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "quiet")
	args := []string{"--policy", mcptest.WritePolicy(t, plainPolicy), "--max-upstreams", "1", "--max-sessions", "10", "--"}
	url, p := mcptest.Listen(t, append(args, u.Command()...)...)
	p.Log().Await(t, "each session, or run, has a process of the server to itself")
	p.Log().Await(t, "most=1")
	first, _ := mcptest.DialWeb(t, url)
	first.Initialize()
	second, _ := mcptest.DialWeb(t, url)
	answer := second.Call("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`).String()
	for _, want := range []string{"as many processes of the server as there may be", "--max-upstreams 1", "--share-upstream"} {
		contains(t, answer, want)
	}
}
