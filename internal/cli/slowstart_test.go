//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

const slowSays = `to start: 2 s (of 2m); it said: "npm warn fetching "a" package"`

// A server that is slow to start is waited for, and what is waited for is told.
func TestInitOfASlowServer(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "slow")
	path := filepath.Join(t.TempDir(), "slow.yaml")
	p := mcptest.Start(t, nil, append([]string{mcptest.Proxy(t), "init", "-o", path, "--"}, u.Command()...)...)
	p.Log().Await(t, slowSays)
	p.Log().Await(t, "to start: 4 s (of 2m)")
	u.Open("started")
	if code := p.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if strings.ContainsAny(p.Log().String(), "\x1b\x07") {
		t.Errorf("what the server said steers the terminal: %q", p.Log())
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "work") {
		t.Errorf("%v\n%s", err, text)
	}
}

// check and lock wait, and tell, as init does, also of a server that is slow to list.
func TestCheckAndLockOfASlowServer(t *testing.T) {
	for name, args := range map[string][]string{"check": {"check"}, "lock": {"lock"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := mcptest.Stdio(t, "slow")
			args = append(append([]string{mcptest.Proxy(t)}, args...), write(t, "p.yaml", plainPolicy), "--")
			p := mcptest.Start(t, nil, append(args, u.Command()...)...)
			p.Log().Await(t, slowSays)
			u.Open("started")
			if code := p.ExitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// One that takes longer than --connect-timeout is ended, which is said, with what it
// said last and what can be done.
func TestInitOfATooSlowServer(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "slow")
	r := command(t, nil, append([]string{"init", "--connect-timeout", "1s", "--"}, u.Command()...)...)
	if r.code != 1 {
		t.Errorf("exit code %d", r.code)
	}
	oneLine(t, r.stderr, "did not answer within 1s, and was ended while it still ran", `it said: "npm warn fetching`, "--connect-timeout 10m, or")
	u.AwaitLive(t, 0)
}

func TestWhatCanBeHadBeforehand(t *testing.T) {
	for command, want := range map[string]string{
		"/usr/bin/npx -y @scope/server /srv":     "/usr/bin/npx -y @scope/server --help",
		"npx.cmd --package a b --port 1":         "npx.cmd --package a b --help",
		"uvx --from git+https://x mcp-x --db /x": "uvx --from git+https://x mcp-x --help",
		"node server.js":                         "run it once by itself",
		"npx -y":                                 "installed beforehand",
	} {
		flags := &serverFlags{}
		flags.Server.Command = strings.Fields(command)
		contains(t, flags.prefetchHint(), want)
	}
}

// Ctrl-C ends the wait, and the server, however that takes it.
func TestInterruptOfAWait(t *testing.T) {
	for _, server := range []string{"slow", "slower"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			u := mcptest.Stdio(t, server)
			p := mcptest.Start(t, nil, append([]string{mcptest.Proxy(t), "init", "--"}, u.Command()...)...)
			p.Log().Await(t, "waiting for ")
			if err := p.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if code := p.ExitCode(); code != 1 {
				t.Errorf("exit code %d", code)
			}
			p.Log().Await(t, "fsm-proxy: interrupted while waiting for ")
			u.AwaitLive(t, 0)
		})
	}
}

// The log of run tells, too, what it waits for.
func TestRunOfASlowServer(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "slow")
	s, p := mcptest.Dial(t, mcptest.RunStdio(t, mcptest.WritePolicy(t, plainPolicy), u.Command()...)...)
	s.Request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
	p.Log().Await(t, "waiting for the server to start (--connect-timeout): server=")
	p.Log().Await(t, "for=2s of=2m")
	u.Open("started")
}

// A connection may take as long as --connect-timeout says.
func TestConnectTimeoutOfZero(t *testing.T) {
	r := command(t, nil, "init", "--connect-timeout", "0s", "--", "true")
	if r.code != 2 {
		t.Errorf("exit code %d", r.code)
	}
	oneLine(t, r.stderr, "--connect-timeout 0s must be more than 0")
}
