// Package network runs tests in a network of their own, whose loopback they can take down: what is sent there is neither
// taken nor refused, as by a machine that is gone.
package network

import (
	"os"
	"os/exec"
	"testing"
)

// mark is set in the process that has a network of its own.
const mark = "MCPTEST_OWN_NETWORK"

// Own runs a test anew, in a process that has a network of its own, and returns whether this is that process, with what
// takes its loopback up and down. In any other process the test is over. It needs the programs unshare and ip.
func Own(t *testing.T) (loopback func(up bool), ok bool) {
	t.Helper()
	if os.Getenv(mark) == "" {
		args := []string{"--net", os.Args[0], "-test.run", "^" + t.Name() + "$"}
		if os.Geteuid() != 0 {
			args = append([]string{"--user", "--map-current-user", "--keep-caps"}, args...)
		}
		again := exec.CommandContext(t.Context(), "unshare", args...)
		again.Env = append(os.Environ(), mark+"=1")
		if out, err := again.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return nil, false
	}
	loopback = func(up bool) {
		t.Helper()
		state := "down"
		if up {
			state = "up"
		}
		if out, err := exec.CommandContext(t.Context(), "ip", "link", "set", "lo", state).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	loopback(true)
	return loopback, true
}
