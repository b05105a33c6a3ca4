package proxy_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

func parse(t *testing.T, source string) *policy.Policy {
	t.Helper()
	p, findings := policy.Parse("new.yaml", []byte(source))
	if p == nil {
		t.Fatal(findings)
	}
	return p
}

// reload puts the review policy, changed, in force.
func (r *rig) reload(changes ...string) runs.Reloaded {
	r.t.Helper()
	return r.p.Reload(parse(r.t, strings.NewReplacer(changes...).Replace(review)))
}

// told are the lists that a client was told of on its own stream since the last
// time it was asked.
func (c *client) told() []string {
	c.rest()
	var told []string
	c.own.set(func(s *stream) {
		for _, raw := range s.sent {
			told = append(told, short([]byte(raw)))
		}
		s.sent = nil
	})
	slices.Sort(told)
	return told
}

func TestReloadMovesByTheSameName(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		c.told()
		done := r.reload("ask: {", "ask: review, rogue: {")
		equal(t, "done", done, runs.Reloaded{Runs: 1, Moved: 1})
		equal(t, "told", c.told(), []string{"tools/list_changed"})
		equal(t, "listed", c.listed(wire.Tools), "status ask rogue")
		c.do("rogue", ok)
		equal(t, "after the new edge", c.listed(wire.Tools), "status secret apply")
	})
}

func TestReloadThatChangesNothingShownTellsNobody(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		r.reload("Look around", "Look about", "rogue", "rogue2")
		equal(t, "told", c.told(), []string(nil))
		if text := c.call("apply").wait(); !strings.Contains(text, "Look about") {
			t.Error(text)
		}
	})
}

func TestReloadTellsOnceForManyChanges(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		for range 10 {
			r.reload("read_file: ,", "")
		}
		equal(t, "told", c.told(), []string{"tools/list_changed"})
	})
}

func TestReloadRenamesAState(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		done := r.p.Reload(parse(t, "renamed: {review: approval}\n"+strings.ReplaceAll(strings.ReplaceAll(review, "review", "approval"), "\nversion: 1", "\nversion: 1")))
		equal(t, "done", done, runs.Reloaded{Runs: 1, Moved: 1})
		c.do("ask", ok)
		equal(t, "listed", c.listed(wire.Tools), "status secret apply")
	})
}

// A call in flight is stepped by the policy that decided it, and the run moves
// when it has ended.
func TestReloadInMidCall(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		call := c.call("write_plan")
		sent := r.up.next()
		done := r.reload("write_plan: review", "write_plan: {on_success: stay, on_error: review}", "ask: {", "rogue: stay, ask: {")
		equal(t, "done", done, runs.Reloaded{Runs: 1, Waiting: 1})
		sent.result(ok)
		call.wait()
		equal(t, "listed", c.listed(wire.Tools), "status ask rogue")
	})
}

// While a call holds the turn of a run that will move, all others are decided by
// the policy in force.
func TestReloadTightensWhileACallIsInFlight(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		call := c.call("write_plan")
		sent := r.up.next()
		r.reload("read_file: ,", "")
		c.refused(c.call("read_file").wait(), policy.UnknownAction)
		equal(t, "listed", c.listed(wire.Tools), "status list_a write_plan")
		sent.result(ok)
		call.wait()
		equal(t, "listed", c.listed(wire.Tools), "status ask")
	})
}

// A call that waits for the turn is decided by the policy that is in force when
// it comes by it.
func TestReloadUnderAQueuedCall(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		first := c.call("write_plan")
		sent := r.up.next()
		second := c.call("write_plan")
		r.reload("write_plan: review", "write_plan: {on_error: stay, on_success: applying}")
		sent.result(failed)
		first.wait()
		r.up.next().result(ok)
		second.wait()
		equal(t, "listed", c.listed(wire.Tools), "status secret apply")
	})
}

// review without its state review.
const shortcut = `
version: 1
initial: planning
everywhere: {tools: [status]}
states:
  planning:
    tools: {read_file: , write_plan: applying}
  applying:
    tools:
      apply: {on_success: {to: done}, on_error: planning}
  done: {terminal: true}
`

func TestStrandedRunIsKeptAndTightened(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		c.told()
		equal(t, "done", r.p.Reload(parse(t, shortcut)), runs.Reloaded{Runs: 1, Stranded: 1})
		c.refused(c.call("ask").wait(), policy.UnknownAction) // bound nowhere in the new policy
		equal(t, "told", c.told(), []string{"prompts/list_changed", "resources/list_changed", "tools/list_changed"})
		equal(t, "listed", c.listed(wire.Tools), "status")
		c.do("status", ok)
	})
}

func TestStrandedRunStepsByItsOldPolicyAndMovesOn(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		r.p.Reload(parse(t, strings.Replace(shortcut, "read_file: ,", "ask: ,", 1)))
		equal(t, "stranded", c.listed(wire.Tools), "status ask")
		c.do("ask", ok) // to applying, by the old policy; that exists in the new one
		equal(t, "moved", c.listed(wire.Tools), "status apply")
		c.do("apply", ok)
		equal(t, "begun anew", c.listed(wire.Tools), "status write_plan ask")
	})
}

func TestStrandedRunMovesWhenItsStateComesBack(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		r.p.Reload(parse(t, shortcut))
		equal(t, "done", r.reload(), runs.Reloaded{Runs: 1, Moved: 1})
		equal(t, "listed", c.listed(wire.Tools), "status ask")
	})
}

func TestStrandedRestartAndRefuse(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		equal(t, "done", r.p.Reload(parse(t, "stranded: restart\n"+shortcut)), runs.Reloaded{Runs: 1, Restarted: 1})
		equal(t, "listed", c.listed(wire.Tools), "status read_file write_plan")
	})
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		equal(t, "done", r.p.Reload(parse(t, "stranded: refuse\n"+shortcut)), runs.Reloaded{Runs: 1, Refused: 1})
		equal(t, "listed", c.listed(wire.Tools), "")
		c.refused(c.call("status").wait(), policy.NotAvailable)
		r.reload() // its state is back
		equal(t, "listed again", c.listed(wire.Tools), "status ask")
	})
}

// What the newest file says of stranded runs holds, whatever one before it said.
func TestRefusedRunGoesOnUnderAMilderPolicy(t *testing.T) {
	for _, milder := range []string{"stranded: keep\n", "on_reload: pin\n"} {
		bubble(t, review, func(r *rig) {
			c := r.connect(plainHello)
			c.do("write_plan", ok)
			r.p.Reload(parse(t, "stranded: refuse\n"+shortcut))
			c.refused(c.call("status").wait(), policy.NotAvailable)
			r.p.Reload(parse(t, milder+shortcut))
			c.do("status", ok)
			equal(t, "listed", c.listed(wire.Tools), "status")
		})
	}
}

// What strands restarts only when the call in flight has ended, and its outcome
// then steps nothing that is gone.
func TestStrandedRestartWaitsForTheCall(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		call := c.call("ask")
		sent := r.up.next()
		equal(t, "done", r.p.Reload(parse(t, "stranded: restart\n"+shortcut)), runs.Reloaded{Runs: 1, Waiting: 1})
		sent.result(ok) // to applying, which the new policy has
		call.wait()
		equal(t, "listed", c.listed(wire.Tools), "status apply")
	})
}

func TestStrandedForTooLongIsRefused(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		r.p.Reload(parse(t, shortcut))
		c.do("status", ok)
		time.Sleep(24*time.Hour + time.Second)
		synctest.Wait()
		c.refused(c.call("status").wait(), policy.NotAvailable)
		r.reload()
		c.do("ask", ok)
	})
}

// Pinned runs stay on their policy, under the rule that a tightening holds.
func TestPinnedRunsStay(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		equal(t, "done", r.p.Reload(parse(t, "on_reload: pin\n"+shortcut)), runs.Reloaded{Runs: 1, Pinned: 1})
		equal(t, "listed", c.listed(wire.Tools), "status read_file write_plan")
		c.do("write_plan", ok)
		equal(t, "in its own review", c.listed(wire.Tools), "status")
		equal(t, "a new run", r.connect(plainHello).listed(wire.Tools), "status read_file write_plan")
	})
}

func TestReloadChangesTheStaticList(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		r.p.Reload(parse(t, shortcut))
		equal(t, "told", c.told(), []string{"prompts/list_changed", "resources/list_changed", "tools/list_changed"})
		equal(t, "listed", c.listed(wire.Tools), "status read_file write_plan apply")
	}, with(func(c *proxy.Config) { c.Surface = surface.Static }))
}

func TestReloadTightensWhatTheUpstreamMayAsk(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		r.p.Reload(parse(t, "upstream_may: []\n"+review))
		up := r.up.conn(0)
		up.says(`{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage"}`, nil)
		if answer := strings.Join(up.notified()[1:], ""); len(c.own.messages()) != 0 || !strings.Contains(answer, "-32601") {
			t.Error(answer, c.own.messages())
		}
	})
}
