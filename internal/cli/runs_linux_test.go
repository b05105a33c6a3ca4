package cli

import (
	"strings"
	"testing"
)

// Runs have colours on a terminal, unless the environment or a flag says not to, and never elsewhere.
func TestRunsOnATerminal(t *testing.T) {
	store, socket, _, _ := keeping(t)
	for _, c := range []struct {
		env, args []string
		coloured  bool
	}{
		{nil, nil, true},
		{[]string{"NO_COLOR=1"}, nil, false},
		{[]string{"NO_COLOR="}, nil, true},
		{[]string{"TERM=dumb"}, nil, false},
		{[]string{"FSM_PROXY_COLOR=never"}, nil, false},
		{nil, []string{"--color", "never"}, false},
		{nil, []string{"--json"}, false},
	} {
		seen := onTerminal(t, 100, append([]string{"TERM=xterm", "NO_COLOR="}, c.env...), append([]string{"runs", "ls", "--store", store}, c.args...), t.TempDir())
		if strings.Contains(seen, "\x1b[") != c.coloured {
			t.Errorf("%v %v: colours %v\n%q", c.env, c.args, !c.coloured, seen)
		}
	}
	for _, from := range [][]string{{"--store", store}, {"--admin", socket}} {
		if r := command(t, []string{"TERM=xterm"}, append([]string{"runs", "ls"}, from...)...); strings.Contains(r.stdout, "\x1b") || r.stdout == "" {
			t.Errorf("into a pipe: %q", r.stdout)
		}
	}
}
