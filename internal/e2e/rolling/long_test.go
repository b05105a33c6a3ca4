//go:build long && unix

package rolling

import (
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// The same, many times, and with more clients.
func TestRollingRestartAgainAndAgain(t *testing.T) {
	u, url := mcptest.HTTP(t, server())
	roll(t, u, 32, 16, 15, "--upstream", url)
}

// The same with a process for each session, all of which end with their proxy.
func TestRollingRestartOfProcesses(t *testing.T) {
	u := mcptest.Stdio(t, "walk")
	roll(t, u, 24, 16, 10, append([]string{"--"}, u.Command()...)...)
}
