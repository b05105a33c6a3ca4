//go:build unix

package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// walk is a walk through Crossroads in which little is as the policy wants it.
var walk = []struct{ method, params, refused string }{
	{"ping", "", ""},
	{"tools/list", "", ""},
	{"tools/list", `{"cursor":"nonsense"}`, ""},
	{"tools/call", `{"name":"choose_left_path","arguments":{}}`, "invalid_transition"},
	{"tools/call", `{"name":"open_door"}`, ""}, // sticks
	{"tools/call", `{"name":"open_door","arguments":{},"_meta":{"progressToken":9007199254740993}}`, ""},
	{"tools/call", `{"name":"open_door"}`, "invalid_transition"},
	{"tools/call", `{"name":"press_button"}`, ""},
	{"tools/call", `{"name":"choose_left_path"}`, ""},
	{"tools/call", `{"name":"go_back"}`, "invalid_transition"},
	{"tools/call", `{"name":"open_door_with_key","arguments":{"key_id":"wrong"}}`, ""},
	{"tools/call", `{"name":"pick_up_key"}`, "invalid_transition"},
	{"tools/call", `{"name":"open_door_with_key","arguments":{"key_id":"right"}}`, ""},
	{"tools/call", `{"name":"press_button"}`, "invalid_transition"}, // a new run, in the entry
	{"tools/call", `{"name":"no such tool"}`, "unknown_action"},
	{"tools/call", `{"arguments":{}}`, "unknown_action"},
	{"resources/list", "", ""},
	{"resources/templates/list", "", "not_available"},
	{"resources/read", `{"uri":"file:///etc/passwd"}`, "unknown_action"},
	{"prompts/get", `{"name":"p"}`, "unknown_action"},
	{"completion/complete", `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"}}`, "unknown_action"},
	{"logging/setLevel", `{"level":"debug"}`, ""},
	{"vendor/method", `{"x":1}`, "not_available"},
	{"tools/list", "", ""},
}

// session plays the walk, and returns all that the server sent.
func session(s *mcptest.Session) (lines []string) {
	lines = append(lines, s.Initialize().String())
	for _, step := range walk {
		answer, before := s.Answer(s.Request(step.method, step.params))
		for _, m := range append(before, answer) {
			lines = append(lines, m.String())
		}
	}
	return lines
}

// Crossroads in shadow is Crossroads without a proxy, byte by byte, over either
// framing; and the log has each call that would have been refused, and no other.
func TestCrossroadsInShadow(t *testing.T) {
	t.Parallel()
	server := []string{mcptest.Proxy(t), "crossroads", "--key", "right"}
	policy := []string{"--policy", "../../policies/crossroads.yaml", "--mode", "shadow", "--"}
	bare, _ := mcptest.Dial(t, server...)
	direct := session(bare)
	downstreams := map[string]func(t *testing.T) (*mcptest.Session, *mcptest.Process){
		"stdio": func(t *testing.T) (*mcptest.Session, *mcptest.Process) {
			return mcptest.Dial(t, append(append([]string{mcptest.Proxy(t), "run"}, policy...), server...)...)
		},
		"http": func(t *testing.T) (*mcptest.Session, *mcptest.Process) {
			url, p := mcptest.Listen(t, append(policy, server...)...)
			s, _ := mcptest.DialWeb(t, url)
			return s, p
		},
	}
	for name, dial := range downstreams {
		t.Run(name, func(t *testing.T) {
			s, p := dial(t)
			proxied := session(s)
			for i := range max(len(direct), len(proxied)) {
				if i >= len(direct) || i >= len(proxied) || direct[i] != proxied[i] {
					t.Fatalf("message %d differs\ndirect:  %s\nproxied: %s", i, direct[i:], proxied[i:])
				}
			}
			sameRefusals(t, p)
		})
	}
}

// sameRefusals checks what the log says would be refused.
func sameRefusals(t *testing.T, p *mcptest.Process) {
	t.Helper()
	p.Log().Await(t, "method=vendor/method")
	var got, want []string
	for line := range strings.Lines(p.Log().String()) {
		if _, said, ok := strings.Cut(line, "would be refused"); ok {
			_, code, _ := strings.Cut(said, "code=")
			code, _, _ = strings.Cut(code, " ")
			got = append(got, strings.TrimSpace(code))
		}
	}
	for _, step := range walk {
		if step.refused != "" {
			want = append(want, step.refused)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("would be refused:\n got %v\nwant %v\n%s", got, want, p.Log())
	}
}

// The mode can come from the environment, like every flag, and no other word is
// taken for one.
func TestModeOfTheEnvironment(t *testing.T) {
	t.Parallel()
	p := write(t, "p.yaml", "version: 1\ninitial: a\nstates: {a: {tools: [other]}}\n")
	u := mcptest.Stdio(t, "quiet")
	s, _ := mcptest.DialIn(t, []string{"FSM_PROXY_MODE=shadow"}, mcptest.RunStdio(t, p, u.Command()...)...)
	s.Initialize()
	if got := s.Tool("work", "").String(); strings.Contains(got, "isError") {
		t.Errorf("refused in shadow: %s", got)
	}
	bad := mcptest.Start(t, nil, mcptest.Proxy(t), "run", "--policy", p, "--mode", "shadwo", "--", "true")
	if code := bad.ExitCode(); code != 2 || !strings.Contains(bad.Log().String(), "none of enforce, shadow") {
		t.Errorf("exit %d: %s", code, bad.Log())
	}
}

// A change of the configuration file ends shadow, and begins it again, for the
// sessions there are, and they are told.
func TestModeFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "quiet")
	text := "version: 1\npolicy: p.yaml\nreload: {debounce: 5ms}\nupstream: {command: " + words(u.Command()) + "}\n"
	path := configured(t, strings.TrimPrefix(text, "version: 1\npolicy: p.yaml\n")+"mode: shadow\n")
	replace(t, filepath.Join(filepath.Dir(path), "p.yaml"), "version: 1\ninitial: a\nstates: {a: {tools: [other]}}\n")
	s, p := mcptest.Dial(t, mcptest.Proxy(t), "run", "--config", path)
	s.Initialize()
	if got := s.Tool("work", "").String(); strings.Contains(got, "unknown_action") {
		t.Errorf("refused in shadow: %s", got)
	}
	replace(t, path, text)
	awaitChanged(t, s)
	if got := s.Tool("work", "").String(); !strings.Contains(got, "unknown_action") {
		t.Errorf("not refused: %s", got)
	}
	replace(t, path, text+"mode: shadow\n")
	awaitChanged(t, s)
	if got := s.Tool("work", "").String(); strings.Contains(got, "unknown_action") {
		t.Errorf("refused in shadow again: %s", got)
	}
	p.Log().Await(t, "applied=mode")
}
