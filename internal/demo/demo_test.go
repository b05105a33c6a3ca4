package demo

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

func TestMain(m *testing.M) { mcptest.Main(m, nil) }

// A proxy that lets everything through is found out at the first step.
func TestPlayFindsAProxyThatEnforcesNothing(t *testing.T) {
	_, url := mcptest.HTTP(t, mcptest.Script{Tools: map[string]func(*mcptest.Exchange){"choose_left_path": nil}}.Server())
	var out bytes.Buffer
	err := Play(t.Context(), url, Options{Out: &out})
	if err == nil || !strings.Contains(err.Error(), "step 1, choose_left_path: it was to be refused and was success") {
		t.Errorf("the walk ended with %v\n%s", err, &out)
	}
}

func TestPlayWithoutAProxy(t *testing.T) {
	if err := Play(t.Context(), "http://127.0.0.1:1/mcp", Options{Out: new(bytes.Buffer)}); err == nil {
		t.Error("nobody listens there, and the walk went well")
	}
}

func TestCompare(t *testing.T) {
	s := step{tool: "open_door", verdict: succeeded, state: "crossroad", changed: true}
	right := reply{verdict: succeeded, state: "crossroad", changed: true}
	if err := s.compare(right); err != nil {
		t.Error(err)
	}
	for _, wrong := range []reply{
		{verdict: failed, state: "crossroad", changed: true},
		{verdict: succeeded, state: "entry", changed: true},
		{verdict: succeeded, state: "crossroad"},
	} {
		if s.compare(wrong) == nil {
			t.Errorf("%+v passes for %+v", wrong, right)
		}
	}
}

func TestColoursOnlyWhereWanted(t *testing.T) {
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		p := &printer{out: &out, colour: colour}
		p.verdict(reply{verdict: refused, text: "no"})
		p.notification("notifications/tools/list_changed")
		if got := strings.Contains(out.String(), "\x1b["); got != colour {
			t.Errorf("colour %v: %q", colour, &out)
		}
	}
}

// Nothing that the walk prints is wider than a terminal.
func TestWrapped(t *testing.T) {
	text := strings.Repeat("wörds and more of them, ", 20)
	got := wrapped(text)
	for _, line := range strings.Split(textIndent+got, "\n") {
		if n := utf8.RuneCountInString(line); n > 79 || !strings.HasPrefix(line, textIndent) {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	if strings.Join(strings.Fields(got), " ") != strings.TrimSpace(text) {
		t.Errorf("words were lost: %q", got)
	}
}
