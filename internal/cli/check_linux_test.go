package cli

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// On a terminal the source is shown, within its width, and colours are, unless the
// environment or a flag says not to.
func TestCheckOnATerminal(t *testing.T) {
	file := write(t, "weak.yaml", weak)
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
		{[]string{"NO_COLOR=1", "TERM=dumb"}, []string{"--color", "always"}, true},
	} {
		seen := onTerminal(t, 40, append([]string{"TERM=xterm", "NO_COLOR="}, c.env...), append([]string{"check", filepath.Base(file)}, c.args...), filepath.Dir(file))
		if strings.Contains(seen, "\x1b[") != c.coloured {
			t.Errorf("%v %v: colours %v\n%q", c.env, c.args, !c.coloured, seen)
		}
		plain := withoutColours(seen)
		contains(t, plain, "\n    7 |     tools: {go: b, jump: b, su…\n      |             ^^\n")
		contains(t, plain, "weak.yaml:9:13: warning: ")
		contains(t, plain, "weak.yaml: ok, 2 states, 2 warnings\n")
	}
	for _, format := range []string{"json", "github", "sarif"} {
		if seen := onTerminal(t, 40, []string{"TERM=xterm"}, []string{"check", "--color", "always", "--format", format, filepath.Base(file)}, filepath.Dir(file)); strings.Contains(seen, "\x1b") {
			t.Errorf("%s has colours", format)
		}
	}
}

// onTerminal runs a command line whose output is a terminal of so many columns, and
// returns what is written to it.
func onTerminal(t *testing.T, columns uint16, env, args []string, folder string) string {
	t.Helper()
	master, slave := terminal(t)
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), mcptest.Proxy(t), args...)
	cmd.Dir, cmd.Stdout, cmd.Env = folder, slave, append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	seen, _ := io.ReadAll(master) // ends with an error, as the terminal has gone
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %v\n%s", args, err, seen)
	}
	return strings.ReplaceAll(string(seen), "\r\n", "\n")
}

// withoutColours is a text without its SGR sequences.
func withoutColours(text string) string {
	var b strings.Builder
	for text != "" {
		before, after, _ := strings.Cut(text, "\x1b[")
		b.WriteString(before)
		_, text, _ = strings.Cut(after, "m")
	}
	return b.String()
}
