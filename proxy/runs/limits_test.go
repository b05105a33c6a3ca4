package runs_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// outlives is a journal that another process has when this one is gone.
type outlives struct{ journal.Store }

func (outlives) Close() error { return nil }

// lasting is a registry whose runs are kept in a journal, as a process has it that starts.
func lasting(t *testing.T, p *policy.Policy, j journal.Store) (*runs.Registry, *durable.Store) {
	t.Helper()
	s := durable.Open(durable.Config{Journal: outlives{j}, Log: hclog.NewNullLogger(), Compile: func([]byte) (*policy.Policy, error) { return p, nil }})
	if err := s.Keep(p, []byte("it")); err != nil {
		t.Fatal(err)
	}
	var keys [2]runs.Key
	keys[bridge.Stateless.Index()].Kind = runs.Handle
	g := runs.New(runs.Config{Policy: p, Keys: keys, Store: s, Process: "it", Idle: time.Hour, Age: 24 * time.Hour, Max: 10, MaxPerPrincipal: 10, MaxStranded: time.Hour,
		Log: hclog.NewNullLogger(), Telemetry: &observe.Telemetry{}})
	t.Cleanup(func() {
		g.Close()
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := g.Resume(); err != nil {
		t.Fatal(err)
	}
	return g, s
}

// began is a run of ann's that has begun.
func began(t *testing.T, g *runs.Registry) *runs.Run {
	t.Helper()
	id, err := g.Start(bridge.Stateless, ann)
	if err != nil {
		t.Fatal(err)
	}
	r, why := find(g, id, ann)
	if why != nil {
		t.Fatal(why)
	}
	return r
}

// asks is a call of ann's.
type asks struct{ run.Call }

func (c *asks) Decided() *run.Call { return &c.Call }
func (c *asks) Refresh()           {}
func (c *asks) AsksClient() bool   { return false }

// enters has a call decided, and returns it if it is let go.
func enters(r *runs.Run) *asks { return entersAs(r, "x") }

func entersAs(r *runs.Run, name string) *asks {
	c := &asks{}
	c.Request = run.Request{Kind: policy.Tool, Name: name, Listed: true, Known: true, Who: &guard.Who{Issuer: ann.Issuer, Subject: ann.Subject}}
	if r.Enter(c, 0) != run.Admitted {
		return nil
	}
	return c
}

// begins has it kept that a call begins.
func begins(t *testing.T, r *runs.Run, c *asks) {
	t.Helper()
	wait, again, err := r.Begin(&c.Call)
	if err != nil || again || wait == nil {
		t.Fatal("it does not begin", again, err)
	}
	if err := wait(); err != nil {
		t.Fatal(err)
	}
}

// Of a call that takes of its principal's limits this is durable before it is sent, whatever becomes of the process then;
// what was given back is free, and nothing is kept of it.
func TestLimitsOfPrincipalsAreWrittenAhead(t *testing.T) {
	p := parse(t, "version: 1\ninitial: a\nstates: {a: {tools: {x: {at_most: {principal: {hour: 2}}}, y: {at_most: {principal: {hour: 9}}}}}}\n")
	j := memory.New(0)
	free := func() (n int) { // for a process that starts now
		g, _ := lasting(t, p, j)
		for r := began(t, g); enters(r) != nil; n++ {
		}
		return n
	}
	objects := func() int {
		all, err := j.ObjectsOf(t.Context(), "principal_limits", "", 100)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	g, s := lasting(t, p, j)
	one, two := began(t, g), began(t, g)
	if n := free(); n != 2 || objects() != 0 {
		t.Errorf("%d are free, and %d objects are kept", n, objects())
	}
	first, second := enters(one), enters(two)
	if first == nil || second == nil || enters(one) != nil {
		t.Fatal("there are not two")
	}
	begins(t, one, first)
	if n := free(); n != 0 {
		t.Errorf("%d are free: another's, that may be sent at any time, is not counted", n)
	}
	two.Leave(&second.Call) // it had not begun
	if err := s.SaveLimits(time.Now()); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, s)
	if n := free(); n != 1 {
		t.Errorf("%d are free, with one that has begun", n)
	}
	second = enters(two)
	begins(t, two, second)
	if n := free(); n != 0 {
		t.Errorf("%d are free, with two that have begun", n)
	}
	two.Leave(&second.Call) // as not sent
	mustWrite(t, s)
	if n := free(); n != 1 {
		t.Errorf("%d are free, with one that was not sent", n)
	}
	one.Settle(&first.Call, run.End{Outcome: policy.Success})
	if n := free(); n != 1 || objects() != 1 {
		t.Errorf("%d are free, and %d objects are kept", n, objects())
	}

	// A process that ends has it kept what it gives back last.
	last, ends := lasting(t, p, j)
	one, two = began(t, last), began(t, last)
	left, other := enters(one), entersAs(two, "y")
	if left == nil || other == nil {
		t.Fatal("there is not one more")
	}
	begins(t, two, other)
	if n := free(); n != 0 {
		t.Errorf("%d are free, with another's that may be sent at any time", n)
	}
	one.Leave(&left.Call)
	last.Close()
	if err := ends.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := free(); n != 1 {
		t.Errorf("%d are free, after a process that has ended", n)
	}
}

// mustWrite returns when all that was handed over until now is written.
func mustWrite(t *testing.T, s *durable.Store) {
	t.Helper()
	wait, err := s.KeepSession("a session", []byte("{}"))
	if err == nil {
		err = wait()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What was kept last of a principal is what it has taken, however many runs it has under way.
func TestLimitsOfPrincipalsAreKeptInOneOrder(t *testing.T) {
	const most, workers = 200, 8
	p := parse(t, "version: 1\ninitial: a\nstates: {a: {tools: {x: {at_most: {principal: {day: 200}}}}}}\n")
	j := memory.New(0)
	g, s := lasting(t, p, j)
	done := make(chan int)
	for range workers {
		r := began(t, g)
		go func() {
			n := 0
			for i := 0; ; i++ {
				c := enters(r)
				if c == nil {
					break
				}
				wait, _, err := r.Begin(&c.Call)
				if err != nil || wait() != nil {
					t.Error("it does not begin", err)
					break
				}
				if i%3 == 2 {
					r.Leave(&c.Call)
					continue
				}
				n++
				r.Settle(&c.Call, run.End{Outcome: policy.Success})
			}
			done <- n
		}()
	}
	sent := 0
	for range workers {
		sent += <-done
	}
	if sent > most || sent < most-workers {
		t.Fatalf("%d were sent", sent)
	}
	mustWrite(t, s)
	again, _ := lasting(t, p, j)
	r, left := began(t, again), 0
	for enters(r) != nil {
		left++
	}
	if left != most-sent {
		t.Errorf("%d were sent of %d, and %d are free", sent, most, left)
	}
}

// A process does not start where what principals have taken cannot be read: nobody gets through by that.
func TestLimitsThatCannotBeRead(t *testing.T) {
	p, j := parse(t, two), memory.New(0)
	each, err := j.Commit(t.Context(), []journal.Change{{Objects: []journal.Object{{Kind: "principal_limits", Name: "somebody", Bytes: []byte("?")}}}})
	if err != nil || slices.ContainsFunc(each, func(err error) bool { return err != nil }) {
		t.Fatal(each, err)
	}
	s := durable.Open(durable.Config{Journal: j, Log: hclog.NewNullLogger()})
	defer s.Close(context.Background())
	g := runs.New(runs.Config{Policy: p, Store: s, Idle: time.Hour, Max: 10, Log: hclog.NewNullLogger(), Telemetry: &observe.Telemetry{}})
	defer g.Close()
	if err := g.Resume(); err == nil {
		t.Error("it starts")
	}
}

// Limits of principals go on over a reload: under the name that their state has then, and for runs that stay on a policy
// which alone has them.
func TestLimitsOfPrincipalsOverAReload(t *testing.T) {
	const limited = "version: 1\ninitial: a\nstates: {a: {tools: {x: {at_most: {principal: {hour: 2}}}}}}\n"
	for next, free := range map[string]bool{ // for a run that begins then
		strings.NewReplacer("a: {tools", "b: {tools", "initial: a", "initial: b").Replace(limited) + "renamed: {a: b}\n": false,
		"version: 1\ninitial: a\non_reload: pin\nstates: {a: {tools: [x]}}\n":                                            true,
	} {
		g, _ := lasting(t, parse(t, limited), memory.New(0))
		before := began(t, g)
		for i := range 3 {
			if (enters(before) != nil) != (i < 2) {
				t.Fatal("there are not two")
			}
		}
		g.Reload(parse(t, next))
		if enters(before) != nil {
			t.Errorf("a run of before has the limit anew after\n%s", next)
		}
		if got := enters(began(t, g)) != nil; got != free {
			t.Errorf("a run that begins is let through: %t, after\n%s", got, next)
		}
	}
}

// What principals take of limits is compared with what others have taken only where others write the store.
func TestLimitsAreSwappedWhereOthersWrite(t *testing.T) {
	for _, alone := range []bool{true, false} {
		c := &common{disk: newDisk(), alone: alone}
		p := replica(t, c, "version: 1\ninitial: a\nstates: {a: {tools: {x: {at_most: {principal: {hour: 2}}}}}}\n")
		r := began(t, p.Registry)
		first := enters(r)
		begins(t, r, first)
		r.Leave(&first.Call)
		begins(t, r, enters(r))
		mustWrite(t, p.s)
		p.ends()
		if c.mu.Lock(); (c.swapped == 0) != alone {
			t.Errorf("alone %v: %d objects are swapped", alone, c.swapped)
		}
		c.mu.Unlock()

		p = replica(t, c, "version: 1\ninitial: a\nstates: {a: {tools: {x: {at_most: {principal: {hour: 2}}}}}}\n")
		if err := p.Resume(); err != nil {
			t.Fatal(err)
		}
		r = began(t, p.Registry)
		if second := enters(r); second == nil || enters(r) != nil {
			t.Errorf("alone %v: after a restart there is not one left", alone)
		}
		p.ends()
	}
}
