//go:build long && unix

package runs

import (
	"fmt"
	"sync"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// shares is a policy of which a principal may make so many calls over all of its runs, at whichever replica they are.
const shares = `version: 1
name: shares
initial: start
states:
  start:
    tools:
      ok: {at_most: {principal: {day: 40}}}
      once: {at_most: {principal: {day: 3}}}
`

// Of a principal's calls in as many runs, at three replicas, as many are sent as its limit says.
func TestLimitsOverReplicas(t *testing.T) {
	database := databases(t)
	each(t, []key{{"modern", byHeader}}, func(t *testing.T, k key) {
		const clients, most = 8, 40
		upstream, url := mcptest.HTTP(t, server())
		r := replicate(t, k, shares, database(t), "--tokens", tokensOf(t, "ann"), "--upstream", url)
		r.upstream = upstream
		var wait sync.WaitGroup
		sent := make([]int, clients)
		for i := range clients {
			h := *r.all[i%len(r.all)] // who has the run then
			c := h.as(k, "ann", fmt.Sprint("run ", i))
			wait.Go(func() {
				for {
					switch x := c.call("ok", ""); x.verdict {
					case "success":
						sent[i]++
					case "limit_reached":
						return
					default:
						t.Errorf("client %d: %s", i, x.raw)
						return
					}
				}
			})
		}
		wait.Wait()
		n := 0
		for _, s := range sent {
			n += s
		}
		if got := upstream.Count("tools/call", "ok"); n != most || got != most {
			t.Errorf("%d were answered %v, and %d were sent, want %d", n, sent, got, most)
		}
		for i := range 2 * len(r.all) { // whatever each knew
			h := *r.all[i%len(r.all)]
			want := "success"
			if i >= 3 {
				want = "limit_reached"
			}
			if x := h.as(k, "ann", fmt.Sprint("another ", i)).call("once", ""); x.verdict != want {
				t.Errorf("call %d: %s", i, x.raw)
			}
		}
		r.end()
	})
}
