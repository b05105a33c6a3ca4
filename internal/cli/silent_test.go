//go:build unix

package cli

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

const hangingPolicy = `version: 1
initial: open
everywhere: {tools: [work, later]}
states:
  open:
    tools:
      hang: {on_unknown: unsure}
      leave: {on_unknown: stay}
  unsure: {tools: [leave]}
`

// A server that leaves a call unanswered, and then a ping, is ended: calls under way
// are told that they may have happened, and the next one starts it again.
func TestSilentServerIsEnded(t *testing.T) {
	for name, c := range map[string]struct{ server, onRestart, state string }{
		"legacy":  {"hanging", "keep", "unsure"},
		"modern":  {"hanging modern", "keep", "unsure"},
		"restart": {"hanging", "restart", "open"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := mcptest.Stdio(t, c.server)
			args := []string{"--call-timeout", "5s", "--upstream-ping", "3s", "--on-upstream-restart", c.onRestart, "--annotate", "text", "--max-upstreams", "1", "--"}
			url, health, _, p := operated(t, mcptest.WritePolicy(t, hangingPolicy), append(args, u.Command()...)...)
			s, _ := mcptest.DialWeb(t, url)
			s.Initialize()
			if answer := s.Tool("hang", ""); !strings.Contains(answer.String(), "no answer came in 5s") {
				t.Errorf("answered %s", answer)
			}
			answer := s.Tool("later", "").String()
			contains(t, answer, "said nothing for 3s (--upstream-ping)")
			if c.server == "hanging" { // else a list is asked for first
				contains(t, answer, "it may have happened")
			}
			answer = s.Tool("work", "").String()
			if !strings.Contains(answer, `"text":"work"`) || u.Started() != 2 {
				t.Errorf("after %d starts: %s", u.Started(), answer)
			}
			contains(t, answer, c.state)
			for _, count := range []string{"\nfsm_proxy_upstream_silent_total 1\n", "\nfsm_proxy_upstream_restarts_total 1\n"} {
				mcptest.Await(t, count, func() bool {
					_, metrics := fetch(t, "GET", health+"/metrics", "localhost", "")
					return strings.Contains(metrics, count)
				})
			}
			p.Log().Await(t, "s (--call-timeout)")
			p.Log().Await(t, "the upstream process is ended: the next call starts it again")
			u.AwaitLive(t, 1)
		})
	}
}

// One that answers the ping goes on, and so does one that answers another call.
func TestServerThatLivesIsLeftAlone(t *testing.T) {
	for name, args := range map[string][]string{
		"by its ping": {"--upstream-ping", "1h"},
		"not pinged":  {"--upstream-ping", "0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := mcptest.Stdio(t, "hanging")
			args = append([]string{"--call-timeout", "2s"}, append(args, "--")...)
			url, _, _, p := operated(t, mcptest.WritePolicy(t, hangingPolicy), append(args, u.Command()...)...)
			s, _ := mcptest.DialWeb(t, url)
			s.Initialize()
			s.Tool("leave", "")
			if args[3] != "0s" {
				p.Log().Await(t, "left a request unanswered, and lives")
			}
			if answer := s.Tool("work", ""); !strings.Contains(answer.String(), `"text":"work"`) || u.Started() != 1 {
				t.Errorf("after %d starts: %s", u.Started(), answer)
			}
			if args[3] == "0s" && u.Count("ping") != 0 {
				t.Error("it was pinged")
			}
		})
	}
}

// It is a command's alone.
func TestPingOfAURL(t *testing.T) {
	path := write(t, "p.yaml", plainPolicy)
	r := command(t, nil, "run", "--policy", path, "--upstream", "http://127.0.0.1:1/mcp", "--upstream-ping", "1s")
	if r.code != 2 {
		t.Errorf("exit code %d", r.code)
	}
	oneLine(t, r.stderr, "--upstream-ping belongs to a command")
	u := mcptest.Stdio(t, "quiet")
	s, p := mcptest.DialIn(t, []string{"FSM_PROXY_UPSTREAM_PING=-1s"}, mcptest.RunStdio(t, path, u.Command()...)...)
	if code := p.ExitCode(); code != 2 {
		t.Errorf("the variable was not read beside a command: exit code %d", code)
	}
	s.Close()
}
