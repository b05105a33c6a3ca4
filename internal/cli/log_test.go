package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// stepping has a step to take, by a call that the server hanging never answers.
const stepping = "version: 1\nname: stepping\ninitial: open\nstates:\n  open:\n    tools:\n      leave: {on_success: shut, on_error: stay, on_unknown: shut}\n  shut:\n    tools:\n      work:\n"

// Requests that no session sees are logged at info with their status and why, each reason once in ten seconds for an
// address, with a count, and none of what may be a secret.
func TestLogSaysWhyARequestIsRefused(t *testing.T) {
	t.Parallel()
	_, upstream := mcptest.HTTP(t, quiet)
	url, p := mcptest.Listen(t, "--policy", mcptest.WritePolicy(t, plainPolicy), "--bearer-file", write(t, "token", "right"), "--upstream", upstream)
	send := func(method, path, body string, header ...string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(url, "/mcp")+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer right"}, "Content-Type": {"application/json"}, "Accept": {"application/json"}}
		for i := 0; i < len(header); i += 2 {
			req.Header[header[i]] = []string{header[i+1]}
		}
		if host := req.Header.Get("Host"); host != "" {
			req.Host = host
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	post := func(path, body string, header ...string) {
		t.Helper()
		send(http.MethodPost, path, body, header...)
	}
	list := mcptest.Request(1, "tools/list", "{}")
	post("/mcp", list, "Authorization", "")
	for range 3 {
		post("/mcp", list, "Authorization", "Bearer s3cret-and-wrong")
	}
	post("/mcp", list, "Host", "evil.example")
	post("/mcp", list, "Origin", "http://evil.example")
	post("/sse/s3cret", list)
	post("/mcp", list, "Mcp-Session-Id", "s3cret-session")
	post("/mcp", list)
	post("/mcp", "no JSON")
	post("/mcp", list, "Content-Type", "text/plain")
	send(http.MethodPut, "/mcp", list)
	post("/mcp", list, "Mcp-Protocol-Version", "2099-01-01")
	post("/mcp", list, "Mcp-Protocol-Version", "2026-07-28")
	post("/mcp", `{"x":"`+strings.Repeat("x", 5<<20)+`"}`)
	_ = p.Process.Signal(os.Interrupt)
	p.ExitCode()
	log := p.Log().String()
	for _, want := range []string{
		`status=401 reason=bearer_missing why="it has no bearer token" remote=127\.0\.0\.1:\d+ method=POST\n`,
		`status=401 reason=bearer_wrong why="its bearer token is not accepted" remote=127\.0\.0\.1:\d+ method=POST\n`,
		`status=401 reason=bearer_wrong why="its bearer token is not accepted" remote=127\.0\.0\.1:\d+ method=POST count=2 since=20\S+Z\n`,
		`status=403 reason=host_not_allowed why="[^"]*--allowed-host[^"]*" remote=\S+ method=POST host=evil\.example\n`,
		`status=403 reason=origin_not_allowed why="[^"]*--allowed-origin[^"]*" remote=\S+ method=POST origin=http://evil\.example\n`,
		`status=404 reason=path_unknown why="[^"]*--path[^"]*" remote=\S+ method=POST path="/sse/…"\n`,
		`status=404 reason=session_unknown `, `status=400 reason=session_missing `, `status=400 reason=message_unreadable `,
		`status=405 reason=method_not_allowed why="[^"]*" remote=\S+ method=PUT\n`, `status=400 reason=version_unsupported why="[^"]*--protocol[^"]*"`,
		`status=415 reason=media_type `, `status=413 reason=body_too_large why="[^"]*--max-message[^"]*"`,
	} {
		if !regexp.MustCompile(`\[INFO\]  fsm-proxy: an HTTP request was refused: ` + want).MatchString(log) {
			t.Errorf("no line %s in\n%s", want, log)
		}
	}
	if n := strings.Count(log, "an HTTP request was refused"); n != 14 {
		t.Errorf("%d lines, want 14:\n%s", n, log)
	}
	if strings.Contains(log, "s3cret") {
		t.Errorf("the log tells what was sent for a secret:\n%s", log)
	}
}

// logLine is a line of the log in JSON.
type logLine struct {
	Level   string `json:"@level"`
	Message string `json:"@message"`
	words   map[string]any
}

// In JSON a duration is what it is in the text log, nothing empty is told, and a call without an answer is a warning with
// the reason, and no refusal.
func TestLogOfAnHour(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			server := mcptest.Stdio(t, "hanging").Command()
			url, p := mcptest.Listen(t, append([]string{"--policy", mcptest.WritePolicy(t, stepping), "--log-format", format, "--call-timeout", "2s", "--"}, server...)...)
			s, _ := mcptest.DialWeb(t, url)
			s.Initialize()
			s.Tool("work", "")
			s.Tool("leave", "")
			s.Tool("work", "")
			_ = p.Process.Signal(os.Interrupt)
			p.ExitCode()
			log := p.Log().String()
			if format == "text" {
				contains(t, log, `[WARN]  fsm-proxy: a call was sent and may have happened: its outcome is unknown: session=`)
				contains(t, log, ` tool=leave reason="no answer came in 2s (--call-timeout)" state=shut `)
				contains(t, log, `code=invalid_transition tool=work state=open why="another state binds it, this one does not"`)
				contains(t, log, " drain=25s\n")
				if strings.Contains(log, `=""`) || strings.Contains(log, "code=outcome_unknown") {
					t.Errorf("the log says nothing, or that an outcome is a refusal:\n%s", log)
				}
				return
			}
			found := map[string]logLine{}
			for line := range strings.Lines(log) {
				l := logLine{}
				if json.Unmarshal([]byte(line), &l) != nil || json.Unmarshal([]byte(line), &l.words) != nil {
					t.Errorf("no JSON: %s", line)
				}
				for name, value := range l.words {
					if value == "" {
						t.Errorf("%s says nothing in %s", name, line)
					}
				}
				found[l.Message] = l
			}
			for message, want := range map[string]map[string]string{
				"a call was sent and may have happened: its outcome is unknown": {"@level": "warn", "reason": "no answer came in 2s (--call-timeout)"},
				"ending: calls under way may finish, new ones are refused":      {"@level": "info", "drain": "25s"},
				"refused": {"@level": "info", "code": "invalid_transition"},
			} {
				for name, value := range want {
					if got := found[message].words[name]; got != value {
						t.Errorf("%q has %s %v, want %s", message, name, got, value)
					}
				}
			}
			if after, _ := found["drained"].words["after"].(string); !strings.HasSuffix(after, "s") {
				t.Errorf("the drain took %v", found["drained"].words["after"])
			}
		})
	}
}
