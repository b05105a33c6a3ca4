package cli

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// On a terminal the wait is told in place, on one line, and leaves nothing behind.
func TestInitOfASlowServerOnATerminal(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "slow")
	master, slave := terminal(t)
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 120}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), mcptest.Proxy(t), append([]string{"init", "--"}, u.Command()...)...)
	cmd.Stderr = slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	screen := bufio.NewReader(master)
	var lines []string
	for len(lines) < 3 { // what stands before the first is empty
		line, err := screen.ReadString('\r')
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.TrimSuffix(line, "\r"))
	}
	u.Open("started")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	slave.Close()
	rest, _ := io.ReadAll(screen) // ends with an error, as the terminal has gone
	contains(t, lines[1], "to start: 2 s (of 2m)")
	contains(t, lines[2], "to start: 3 s (of 2m)")
	for _, line := range lines {
		if len([]rune(line)) > 119 || strings.ContainsAny(line, "\n\x1b") {
			t.Errorf("%q", line)
		}
	}
	_, after, cleared := strings.Cut(string(rest), strings.Repeat(" ", 119)+"\r")
	if !cleared || strings.Contains(after, "waiting for") {
		t.Errorf("the line is left on the screen:\n%q", rest)
	}
}
