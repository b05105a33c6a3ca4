//go:build long && unix

package runs

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// While replicas enforce different policies a run moves to the one that came into force later, and never back: a replica with
// the older one serves it by its own, until that replica gets a later one, too.
func TestReplicasOfTwoPolicies(t *testing.T) {
	database := databases(t)
	each(t, []key{{"modern", "handle"}, {"modern", "principal"}, {"legacy", byHeader}}, func(t *testing.T, k key) {
		_, upstream := mcptest.HTTP(t, server())
		renamed := strings.NewReplacer("after", "behind", "[elsewhere]", "{elsewhere: start}").Replace(steps) + "renamed: {after: behind}\n"
		flags := []string{"--annotate", "meta", "--store", database(t), "--lease", "5s", "--peer-listen", "127.0.0.1:0", "--upstream", upstream}
		older := open(t, k, steps, flags...)
		does := func(c *client, tool, verdict, state string) {
			t.Helper()
			if r := c.call(tool, ""); r.verdict != verdict || r.state != state {
				t.Fatalf("%s: want %s in %s: %s", tool, verdict, state, r.raw)
			}
		}
		c := older.enter(k, "")
		does(c, "once", "success", "after")

		later := open(t, k, renamed, flags...)
		older.ends(syscall.SIGTERM)
		c = later.enter(k, c.run())
		does(c, "once", "invalid_transition", "behind")

		older.anew()
		later.ends(syscall.SIGTERM)
		c = older.enter(k, c.run())
		does(c, "once", "invalid_transition", "behind")
		does(c, "elsewhere", "success", "start")
		does(c, "once", "success", "behind") // it is served by its own in all that comes

		if err := os.WriteFile(older.args[1], []byte(strings.NewReplacer("{after: behind}", "{after: beyond, behind: beyond}", "behind", "beyond").Replace(renamed)), 0o600); err != nil {
			t.Fatal(err)
		}
		mcptest.Await(t, "the run moves to what came into force last", func() bool { return c.call("once", "").state == "beyond" })
		does(c, "elsewhere", "success", "start")
		later.anew() // with what was renamed meanwhile
		older.ends(syscall.SIGTERM)
		c = later.enter(k, c.run())
		does(c, "once", "success", "beyond")
	})
}
