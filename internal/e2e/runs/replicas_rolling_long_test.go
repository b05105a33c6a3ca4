//go:build long && unix

package runs

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// All replicas are replaced under load, one after the other, as an update does that tells whoever sends requests first: each
// call is answered with its own result, and is sent once.
func TestReplicasUnderARollingUpdate(t *testing.T) {
	database := databases(t)
	each(t, []key{{"modern", "handle"}, {"legacy", "session"}, {"modern", "principal"}}, func(t *testing.T, k key) {
		e := newEffects()
		_, upstream := mcptest.HTTP(t, e.server())
		var people []string
		for i := range 8 {
			people = append(people, fmt.Sprint("walker-", i))
		}
		r := replicate(t, k, turns, database(t), "--tokens", tokensOf(t, people...), "--upstream", upstream)
		var all []*walker
		for _, who := range people {
			all = append(all, &walker{client: r.comes(k, who), who: who, effects: e, pace: 20 * time.Millisecond, strict: true})
		}
		stop := walking(t, all)
		for i, h := range r.all {
			e.await(t.Context(), 2*len(all))
			r.come(r.all[(i+1)%3], r.all[(i+2)%3])
			h.ends(syscall.SIGTERM)
			h.anew()
			h.leases()
			r.come(r.all...)
		}
		e.await(t.Context(), 2*len(all))
		stop()
		r.end()
		stood(t, all, e, r.store, 8*len(all))
	})
}

// A replica that is ending, and has a call under way still, has others serve who comes to it without a run, and ends with the
// call.
func TestNewcomersAtAReplicaThatEnds(t *testing.T) {
	database := databases(t)
	each(t, []key{{"modern", "handle"}, {"legacy", "session"}, {"modern", "principal"}, {"legacy", "principal"}}, func(t *testing.T, k key) {
		upstream, url := mcptest.HTTP(t, busy())
		r := replicate(t, k, busyPolicy, database(t), "--tokens", tokensOf(t, "ann", "bob"), "--upstream", url)
		c := r.comes(k, "ann")
		held := c.begins("hold", `"who":"gate"`)
		upstream.Await(t, 1, "tools/call", "hold")
		owner, _ := r.owner()
		owner.sends(syscall.SIGTERM)
		owner.process.Log().Await(t, "ending: calls under way")
		r.come(owner)
		late := r.comes(k, "bob")
		for range 3 {
			if x := late.call("ok", ""); x.verdict != "success" {
				t.Error(x.raw)
			}
		}
		upstream.Open("gate")
		if x := c.answered(held); x.verdict != "success" {
			t.Error(x.raw)
		}
		began := time.Now()
		owner.process.ExitCode()
		if took := time.Since(began); took > time.Second+slack {
			t.Errorf("it has ended %v after its last call", took)
		}
	})
}
