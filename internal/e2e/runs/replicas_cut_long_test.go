//go:build long && unix

package runs

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// patience is for how long a replica tries to reach the owner of a run: a lease and 5 s, and what the last attempt takes
// where nobody answers.
const patience = lease + 5*time.Second + 6*time.Second

// silence is for how long the owner of a run may answer nothing at all, while what is sent to it is acknowledged.
const silence = lease/2 + 10*time.Second

// A replica that cannot reach a run's owner, which lives, says so in a bounded time, and nothing is done then. What was under way
// may have happened. Clients that reach the owner go on, and all do once the way is mended.
func TestReplicasCutFromEachOther(t *testing.T) {
	database := databases(t)
	t.Parallel()
	for name, f := range map[string]struct {
		breaks func(*line)
		within time.Duration // what was under way is answered
		next   []string      // what the next call is answered: it may go out over a connection that nobody has found dead
	}{
		"reset":      {(*line).cut, slack, []string{"store_unavailable"}},
		"no answer":  {(*line).silence, slack, []string{"store_unavailable"}},
		"black hole": {(*line).hold, silence + slack, []string{"store_unavailable", "outcome_unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, []key{{"modern", "principal"}, {"modern", "handle"}, {"legacy", "session"}}, func(t *testing.T, k key) {
				upstream, url := mcptest.HTTP(t, server())
				r := lined(t, k, twice, database(t), "--upstream", url)
				c, owner, others := r.entered(k)
				r.come(others...)
				held := c.begins("hold", `"who":"me"`)
				upstream.Await(t, 1, "tools/call", "hold")
				f.breaks(r.doors[owner])
				began := time.Now()
				if x := c.answered(held); x.verdict != "outcome_unknown" || time.Since(began) > f.within || !strings.Contains(x.raw, "Tool 'hold' was passed on to the process that has this run, and no answer came back") {
					t.Errorf("what was under way, after %v: %s", time.Since(began), x.raw)
				}
				began = time.Now()
				if x := c.call("ok", ""); !slices.Contains(f.next, x.verdict) || time.Since(began) > patience+slack {
					t.Errorf("after %v: %s", time.Since(began), x.raw)
				}
				if n := upstream.Count("tools/call", "ok"); n != 1 {
					t.Errorf("ok was sent %d times", n)
				}
				upstream.Open("hold")
				r.come(owner)
				state := c.idle(t, "hold")
				r.doors[owner].mend()
				for _, at := range r.all {
					r.come(at)
					if is := c.idle(t, "hold"); is != state {
						t.Errorf("the run is in %s, and was in %s", is, state)
					}
				}
				if is, _ := r.owner(); is != owner {
					t.Error("the run has another owner")
				}
				if n := upstream.Count("tools/call", "hold"); n != 1 {
					t.Errorf("hold was sent %d times", n)
				}
				r.end()
				verified(t, r.store)
			})
		})
	}
}

// idle is the state that the run is in once nothing is under way, by what a call of a tool says that was allowed before.
func (c *client) idle(t *testing.T, tool string) (state string) {
	t.Helper()
	mcptest.Await(t, "nothing is under way", func() bool {
		x := c.call(tool, "")
		if x.verdict != "invalid_transition" && x.verdict != "busy" {
			t.Fatalf("%s again: %s", tool, x.raw)
		}
		state = x.state
		return x.verdict != "busy"
	})
	return state
}

// cuts are what befalls the ways of replicas under load.
var cuts = []func(l *load, h *house){
	func(l *load, h *house) { during(l.data[h].cut, l.data[h].mend) },
	func(l *load, h *house) { during(l.data[h].hold, l.data[h].mend) },
	func(l *load, h *house) { during(l.doors[h].cut, l.doors[h].mend) },
	func(l *load, h *house) { during(l.doors[h].silence, l.doors[h].mend) },
}

// during has a fault last for longer than a lease.
func during(begins, ends func()) {
	begins()
	<-time.After(3 * lease / 2) // which is the fault
	ends()
}

// Replicas are cut off from the database, and from each other, at random moments under clients that come to each of them.
func TestReplicasUnderCuts(t *testing.T) {
	database := databases(t)
	t.Parallel()
	for name, some := range map[string][]key{"handle and session": handleAndSession, "principal": principals} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := loaded(t, lined, some, 12, database(t))
			l.befall(len(cuts), func(i int) { cuts[i](l, l.any()) })
			l.settles()
		})
	}
}
