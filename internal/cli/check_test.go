package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// What a server lists and no state binds is one line, with each name; for
// programs each name is a finding.
func TestCheckTellsTogetherWhatIsUnbound(t *testing.T) {
	p := write(t, "door.yaml", "version: 1\ninitial: a\nstates:\n  a:\n    tools: [open_door, press_button]\n")
	server := []string{"--", mcptest.Proxy(t), "crossroads"}
	r := command(t, nil, append([]string{"check", p}, server...)...)
	want := p + ": note: no state binds 5 of the upstream's tools: " +
		`"choose_left_path", "choose_right_path", "go_back", "open_door_with_key" and "pick_up_key" (unbound)` + "\n" + p + ": ok, 1 state\n"
	if r.stdout != want {
		t.Errorf("got\n%s\nwant\n%s", r.stdout, want)
	}
	r = command(t, nil, append([]string{"check", "--format", "json", p}, server...)...)
	if n := strings.Count(r.stdout, `"code": "unbound"`); n != 5 {
		t.Errorf("%d findings, want 5:\n%s", n, r.stdout)
	}
}

// weak is a policy that is weaker than it looks in each way that check knows, but for its graph.
const weak = `version: 1
initial: a
everywhere:
  tools: [look]
states:
  a:
    tools: {go: b, jump: b, sure: {on_success: b, on_unknown: stay}}
  b:
    tools: {"*": none, back: {on_any: a}}
`

// What makes a policy weaker than it looks is said without a server: warnings that --strict counts as errors, and a note
// that it does not. A server exempts tools that it calls read-only or idempotent.
func TestCheckSaysWhatIsWeakerThanItLooks(t *testing.T) {
	t.Parallel()
	p := write(t, "weak.yaml", weak)
	want := strings.ReplaceAll(`P:6:3: note: runs go round through "a" and "b" and never complete, as no edge is terminal: what may be called once in a round may be called again in the next; make an edge terminal if the work has an end (cycle)
P:7:13: warning: "go" and "jump" lead on and have no "on_unknown": a call that was sent and then cancelled, or never answered, may have happened, and is taken as stay; say where it leads (stay: each may be called again) (no-on-unknown)
P:9:13: warning: "*": none does not unbind "look": names of everywhere are more specific than "*"; write "everywhere: false" in state "b" to take nothing of everywhere, or give each name a value in the state (survives-none)
P: note: 3 implicit stays: nothing is said of some outcome, so the state stays; --format json has each (implicit-stay)
P: ok, 2 states, 2 warnings
`, "P:", p+":")
	if r := command(t, nil, "check", p); r.code != 0 || r.stdout != want {
		t.Errorf("exit code %d\n%s\nwant\n%s", r.code, r.stdout, want)
	}
	if r := command(t, nil, "check", "--strict", p); r.code != 1 {
		t.Errorf("--strict: exit code %d\n%s", r.code, r.stdout)
	}

	cyclic := write(t, "cyclic.yaml", "version: 1\ninitial: a\nstates:\n  a: {tools: {go: {on_any: b}}}\n  b: {tools: {back: {on_any: a}}}\n")
	r := command(t, nil, "check", "--strict", "--format", "json", cyclic)
	var reports []struct {
		OK       bool
		Findings []struct{ Level, Code string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &reports); err != nil {
		t.Fatal(err)
	}
	if r.code != 0 || !reports[0].OK || len(reports[0].Findings) != 1 || reports[0].Findings[0].Level != "note" || reports[0].Findings[0].Code != "cycle" {
		t.Errorf("a note and --strict: exit code %d\n%s", r.code, r.stdout)
	}

	tools := write(t, "tools.json", `{"name":"look"},{"name":"sure"},{"name":"back"},{"name":"go"},{"name":"jump","annotations":{"readOnlyHint":true}}`)
	r = command(t, nil, append(append([]string{"check", p, "--"}, mcptest.Stdio(t, "drifting").Command()...), tools)...)
	contains(t, r.stdout, `:7:13: warning: "go" leads on and has no "on_unknown", and the upstream does not call it idempotent`)
	contains(t, r.stdout, `:7:20: note: "jump" leads on and has no "on_unknown"; the upstream lists no tool under it that does more`)
}

// What the proxy carries by itself in either era is refused in passthrough: methods, notifications and capabilities.
func TestPassthroughOfWhatIsCarried(t *testing.T) {
	t.Parallel()
	names := []string{
		"tools/call", "tools/list", "resources/read", "prompts/get", "resources/subscribe", "completion/complete", "initialize", "ping",
		"logging/setLevel", "server/discover", "subscriptions/listen", "tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update",
		"sampling/createMessage", "elicitation/create", "roots/list",
		"notifications/cancelled", "notifications/progress", "notifications/message", "notifications/initialized", "notifications/tasks",
		"notifications/tasks/status", "notifications/resources/updated", "notifications/tools/list_changed",
		"tools", "resources", "prompts", "logging", "completions", "tasks", "sampling", "elicitation", "roots",
		"Tools/Call", "TASKS/GET", "taſkſ/get", "Sampling",
	}
	file := write(t, "p.yaml", plainPolicy+"passthrough:\n  - acme/search\n  - notifications/acme\n  - experimental\n  - 'tools/call '\n  - \"ping\\0\"\n  - "+strings.Join(names, "\n  - ")+"\n")
	r := command(t, nil, "run", "--policy", file, "--", "cat")
	if r.code != 1 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	for _, name := range names {
		if !strings.Contains(r.stderr, `passthrough: "`+name+`" is decided by `) {
			t.Errorf("nothing of %s", name)
		}
	}
	if n := strings.Count(r.stderr, "passthrough:"); n != len(names)+2 || strings.Count(r.stderr, "is no method") != 2 {
		t.Errorf("%d findings for %d names: %s", n, len(names), r.stderr)
	}
}

// A configuration holds secrets: none of it is shown, on a terminal neither.
func TestCheckShowsNothingOfAConfiguration(t *testing.T) {
	t.Parallel()
	path := configured(t, "upstream: {url: 'http://127.0.0.1:1/mcp', headers: {'A B': hunter2}}\n")
	for _, format := range []string{"text", "json", "github", "sarif"} {
		r := command(t, nil, "check", "--config", path, "--color", "always", "--format", format)
		if r.code != 1 || strings.Contains(r.stdout+r.stderr, "hunter2") || strings.Contains(r.stdout, "^") {
			t.Errorf("%s: exit code %d\n%s%s", format, r.code, r.stdout, r.stderr)
		}
	}
}

// A workflow command is one line, whatever a path or a policy holds.
func TestWorkflowCommands(t *testing.T) {
	t.Setenv("GITHUB_WORKSPACE", "/repo")
	for _, c := range []struct {
		f    policy.Finding
		want string
	}{
		{policy.Finding{File: "/repo/p.yaml", Line: 3, Column: 5, Code: "type", Message: "a: b, c"}, "::error file=p.yaml,line=3,col=5,title=type::a: b, c\n"},
		{policy.Finding{Level: policy.LevelWarning, File: "/else/p.yaml", Code: "cycle", Message: "x"}, "::warning file=/else/p.yaml,title=cycle::x\n"},
		{policy.Finding{Level: policy.LevelNote, File: "/repo/a,b:c%\n::error::d", Code: "cycle", Message: "50%\r\n::stop-commands::x"},
			"::notice file=a%2Cb%3Ac%25%0A%3A%3Aerror%3A%3Ad,title=cycle::50%25%0D%0A::stop-commands::x\n"},
		{policy.Finding{File: "/repo/../repo2/p", Code: "x", Message: ""}, "::error file=/repo2/p,title=x::\n"},
	} {
		if got := workflowCommand(c.f); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
