//go:build long && unix

package runs

import (
	"os"
	"syscall"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// The server of a run that a replica wraps moves with the run: its next owner starts another one, and the run stays where it is, or
// begins anew, as --on-upstream-restart says.
func TestServersOfReplicas(t *testing.T) {
	database := databases(t)
	by := map[string]os.Signal{"handle": os.Kill, "session": syscall.SIGTERM}
	each(t, []key{{"modern", "handle"}, {"legacy", "session"}}, func(t *testing.T, k key) {
		for how, want := range map[string]step{"keep": walk[3], "restart": walk[0]} { // by the lever, which nobody has pulled at the new server
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				r := replicate(t, k, crossroads(t, restarts), database(t), "--on-upstream-restart", how, "--", mcptest.Proxy(t), "crossroads", "--key", "brass")
				c := r.enter(k, "")
				c.play(t, walk[:3])
				owner, others := r.owner()
				behind(t, r.store, 0, walk[2].tool)
				r.come(others...)
				owner.ends(by[k.kind])
				if x := c.surely(want.tool, ""); x.verdict != want.verdict || x.state != want.state {
					t.Errorf("want %s in %s: %s", want.verdict, want.state, x.raw)
				}
			})
		}
	})
}
