package proxy_test

import (
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

// strand has a client in review when that goes.
func (r *rig) strand(fate string) *client {
	r.t.Helper()
	c := r.connect(plainHello)
	c.do("write_plan", ok)
	r.p.Reload(parse(r.t, fate+shortcut))
	c.told()
	return c
}

func TestMigrateRestartsStrandedRuns(t *testing.T) {
	for _, fate := range []string{"", "stranded: refuse\n"} {
		bubble(t, review, func(r *rig) {
			c := r.strand(fate)
			other := r.connect(plainHello)
			other.do("write_plan", ok) // to applying, which is no reason to begin anew
			other.told()
			equal(t, "done", r.p.Migrate(), runs.Migrated{Runs: 2, Restarted: 1})
			equal(t, "told", c.told(), []string{"tools/list_changed"})
			equal(t, "listed", c.listed(wire.Tools), "status read_file write_plan")
			c.do("write_plan", ok)
			c.in("applying")
			equal(t, "others told", other.told(), []string(nil))
			other.in("applying")
			equal(t, "again", r.p.Migrate(), runs.Migrated{Runs: 2})
		})
	}
}

// On the static surface nothing that is shown changes.
func TestMigrateTellsNobodyOfWhatLooksTheSame(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.strand("")
		equal(t, "done", r.p.Migrate(), runs.Migrated{Runs: 1, Restarted: 1})
		equal(t, "told", c.told(), []string(nil))
		c.in("planning")
	}, with(func(c *proxy.Config) { c.Surface = surface.Static }))
}

// A call under way belongs to the run that was: its answer arrives, and steps
// nothing. Who waits for the turn is decided by the run that is.
func TestMigrateInMidCall(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		r.p.Reload(parse(t, strings.Replace(shortcut, "read_file: ,", "ask: applying,", 1)))
		under, queued := c.call("ask"), c.call("ask")
		sent := r.up.next()
		equal(t, "done", r.p.Migrate(), runs.Migrated{Runs: 1, Restarted: 1})
		c.in("planning")
		if !queued.pending() {
			t.Error("the turn is held still")
		}
		sent.result(ok) // which would lead to applying in either policy
		if text := under.wait(); !strings.Contains(text, `"ok"`) {
			t.Error(text)
		}
		c.in("planning")
		r.up.next().result(ok)
		queued.wait()
		c.in("applying")
	})
}

// Runs that are pinned stay where they are: nothing is gone for them.
func TestMigrateLeavesPinnedRunsAlone(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.strand("on_reload: pin\n")
		equal(t, "done", r.p.Migrate(), runs.Migrated{Runs: 1})
		c.in("review")
	})
}

// In shadow a stranded run begins anew as well, and nobody is told.
func TestMigrateInShadow(t *testing.T) {
	bubble(t, review, func(r *rig) {
		r.up.auto = lists(reviewTools...)
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		r.p.Reload(parse(t, shortcut))
		equal(t, "done", r.p.Migrate(), runs.Migrated{Runs: 1, Restarted: 1})
		equal(t, "told", c.told(), []string(nil))
		equal(t, "state", r.p.Sessions()[0].Run.State, "planning")
	}, with(func(c *proxy.Config) { c.Mode = runs.Shadow }))
}

func TestSessionsAreTold(t *testing.T) {
	bubble(t, review, func(r *rig) {
		if all := r.p.Sessions(); len(all) != 0 {
			t.Errorf("before any: %+v", all)
		}
		raw := r.open()
		if i := r.p.Sessions()[0]; i.Client != "" || i.Protocol != "" || i.Run.State != "planning" {
			t.Errorf("before initialize: %+v", i)
		}
		raw.s.Close()
		synctest.Wait()
		c := r.connect(strings.Replace(plainHello, `"test"`, `"test\u0000`+strings.Repeat("x", 1000)+`"`, 1))
		began := time.Now()
		c.do("write_plan", ok)
		first, second := c.call("ask"), c.call("ask")
		sent := r.up.next()
		synctest.Wait()
		r.p.Reload(parse(t, "stranded: refuse\n"+shortcut))
		i := r.p.Sessions()[0]
		if !strings.HasPrefix(i.Client, `test\x00xxx`) || len(i.Client) > 140 || i.Version != "1" || i.Protocol != "2025-11-25" || i.Began.After(began) || i.InFlight != 2 {
			t.Errorf("%+v", i)
		}
		if run := i.Run; run.State != "review" || !run.TurnHeld || run.Queued != 1 || !run.Stranded.IsZero() || run.Refused || run.Complete {
			t.Errorf("while a call holds the turn: %+v", run)
		}
		sent.fail(-32601) // no outcome, no step
		first.wait()
		c.refused(second.wait(), policy.NotAvailable)
		run := r.p.Sessions()[0].Run
		if run.TurnHeld || run.Queued != 0 || run.Stranded.IsZero() || !run.Refused || run.Policy == r.p.Policy().Digest() {
			t.Errorf("stranded: %+v", run)
		}
	})
}

func TestCompleteRunsAreTold(t *testing.T) {
	bubble(t, "on_complete: stop\n"+review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		c.do("ask", ok)
		c.do("apply", ok)
		if run := r.p.Sessions()[0].Run; !run.Complete || run.State != "done" {
			t.Errorf("%+v", run)
		}
	})
}
