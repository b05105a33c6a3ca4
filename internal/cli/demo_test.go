package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

func TestDemoOnce(t *testing.T) {
	t.Parallel()
	r := command(t, nil, "demo", "--once")
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if strings.Contains(r.stdout, "\x1b") {
		t.Error("there are colours, and no terminal")
	}
	contains(t, r.stdout, "refused  Tool 'choose_left_path' is not allowed in state 'entry'")
	before, _, _ := strings.Cut(r.stdout, "success  The door swings open.")
	if !strings.HasSuffix(before, "notified notifications/tools/list_changed\n    ") {
		t.Error("list_changed does not come right before the result")
	}
}

// Without --once the proxy stays up for others, each with a door of its own.
func TestDemoStaysUp(t *testing.T) {
	t.Parallel()
	p := mcptest.Start(t, nil, mcptest.Proxy(t), "demo")
	p.Log().Await(t, "The proxy stays up")
	_, rest, _ := strings.Cut(p.Log().String(), "http://")
	address, _, _ := strings.Cut(rest, "/mcp")
	s, _ := mcptest.DialWeb(t, "http://"+address+"/mcp")
	s.Initialize()
	contains(t, s.Tool("open_door", "{}").String(), "The door is stuck")
	_ = p.Process.Signal(os.Interrupt)
	if code := p.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
