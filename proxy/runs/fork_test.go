package runs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

const counting = `
version: 1
initial: a
registers: {n: counter}
states:
  a: {tools: {go: {on_success: {to: b, set: {n: {add: 1}}}, on_unknown: b}, look: stay}}
  b: {tools: {back: {on_any: a}, look: stay, pay: {irreversible: true}}}
`

// call is one of a test's.
type call struct{ run.Call }

func (c *call) Decided() *run.Call { return &c.Call }
func (c *call) Refresh()           {}
func (c *call) AsksClient() bool   { return false }

// makes makes a call of a run to its end, and reports whether it was allowed.
func makes(t *testing.T, r *runs.Run, name string) bool {
	c := &call{run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Listed: true, Known: true}}}
	for {
		a := r.Enter(c, 100)
		if a == run.Queued {
			<-c.Turn
			var ok bool
			if a, ok = r.Granted(c); !ok {
				continue
			}
		}
		if a != run.Admitted {
			r.Leave(&c.Call)
			return false
		}
		wait, again, err := r.Begin(&c.Call)
		if err == nil && wait != nil {
			err = wait()
		}
		if err != nil {
			t.Error(err)
			return false
		}
		if again {
			r.Leave(&c.Call)
			continue
		}
		if _, _, err := r.Settle(&c.Call, run.End{Outcome: policy.Success}); err != nil {
			t.Error(err)
		}
		r.Pass(&c.Call)
		return true
	}
}

// forking is a registry over a journal, of whose entries so many are kept before a checkpoint, 0 for all.
func forking(t *testing.T, j journal.Store, keep, most int) *runs.Registry {
	t.Helper()
	s := durable.Open(durable.Config{Journal: j, Keep: keep, Log: hclog.NewNullLogger()})
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	p := parse(t, counting)
	if err := s.Keep(p, []byte(counting)); err != nil {
		t.Fatal(err)
	}
	var keys [2]runs.Key
	keys[bridge.Stateless.Index()].Kind = runs.Handle
	keys[1-bridge.Stateless.Index()].Kind = runs.Process
	g := runs.New(runs.Config{Policy: p, Keys: keys, Store: s, Idle: time.Hour, Max: most, MaxPerPrincipal: most, MaxStranded: time.Hour,
		Log: hclog.NewNullLogger(), Telemetry: &observe.Telemetry{}})
	t.Cleanup(g.Close)
	return g
}

// A run is forked while calls go on in it: each fork is the run at one of its entries, whole, and goes on by itself.
func TestForkWhileItGoesOn(t *testing.T) {
	j := memory.New(0)
	g := forking(t, j, 0, 100)
	r := began(t, g)
	var walking sync.WaitGroup
	for _, name := range []string{"go", "back", "look"} {
		walking.Go(func() {
			for range 200 {
				makes(t, r, name)
			}
		})
	}
	var forks []*runs.Fork
	for range 30 {
		f, err := g.Fork(runs.Forking{Run: r.Name})
		if err != nil {
			t.Fatal(err)
		}
		forks = append(forks, f)
	}
	walking.Wait()
	for _, f := range forks {
		want, moves := "a", 0
		for x, err := range journal.All(t.Context(), j, r.Name) {
			if err != nil {
				t.Fatal(err)
			}
			if text := string(x.Bytes); x.Seq <= f.Of.Seq && strings.Contains(text, `"changed":true`) {
				want = "b"
				if moves++; strings.Contains(text, `"to":{"state":"a"`) {
					want = "a"
				}
			}
		}
		if at := f.Where(); at.State() != want {
			t.Errorf("forked at %d it is in %s, want %s", f.Of.Seq, at.State(), want)
		}
		if n := f.Inspect().Registers.AppendJSON(nil); string(n) != fmt.Sprintf(`{"n":%d}`, (moves+1)/2) {
			t.Errorf("forked at %d, after %d steps, it remembers %s", f.Of.Seq, moves, n)
		}
		if next := map[string]string{"a": "go", "b": "back"}[want]; !makes(t, f.Run, next) {
			t.Errorf("forked at %d it does not go on", f.Of.Seq)
		}
		for _, x := range f.Sent {
			if x.Outcome != "" && x.Seq <= f.Of.Seq {
				t.Errorf("forked at %d it does not know of %+v", f.Of.Seq, x)
			}
		}
	}
	for id, err := range journal.VerifyAll(t.Context(), j, nil, durable.Verifier(nil)) {
		if err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// What is cut off, damaged, or one too many is refused, and nothing is left of it.
func TestForksThatAreRefused(t *testing.T) {
	j := memory.New(0)
	g := forking(t, j, 4, 3)
	r := began(t, g)
	for range 10 {
		makes(t, r, "go")
		makes(t, r, "back")
	}
	row, err := j.Row(t.Context(), r.Name)
	if err != nil || row.Base.Seq == 0 {
		t.Fatalf("nothing is cut off: %+v, %v", row, err)
	}
	for at, want := range map[uint64]error{1: runs.ErrCut, row.Base.Seq: runs.ErrCut, row.Last.Seq + 1: runs.ErrAhead} {
		if f, err := g.Fork(runs.Forking{Run: r.Name, At: at}); !errors.Is(err, want) {
			t.Errorf("at %d of %d to %d: %v, %v", at, row.Base.Seq, row.Last.Seq, f, err)
		}
	}
	f, err := g.Fork(runs.Forking{Run: r.Name, At: row.Base.Seq + 1}) // all that is kept can be
	if err != nil || f.Of.Seq != row.Base.Seq+1 {
		t.Fatal(f, err)
	}
	makes(t, r, "go")
	if row, err = j.Row(t.Context(), r.Name); err != nil {
		t.Fatal(err)
	}
	makes(t, r, "pay")
	if _, err := g.Fork(runs.Forking{Run: r.Name, At: row.Last.Seq}); err == nil || !strings.Contains(err.Error(), "irreversible") {
		t.Error(err)
	}
	if _, err := g.Fork(runs.Forking{Run: r.Name}); err != nil {
		t.Error(err)
	}
	if f, err := g.Fork(runs.Forking{Run: r.Name}); err == nil || !strings.Contains(err.Error(), "too many runs") {
		t.Error("there is room for a fourth:", f, err)
	}
	if f, err := g.Fork(runs.Forking{Run: "nobody"}); f != nil || err != nil {
		t.Error(f, err)
	}
	if all := g.All(); len(all) != 3 {
		t.Errorf("%d runs", len(all))
	}
}

// A fork of the process's run, which is everybody's, is the first principal's who comes.
func TestForkOfTheProcess(t *testing.T) {
	g := forking(t, memory.New(0), 0, 10)
	r, why := g.Find(bridge.Client{}, &observe.Peer{Principal: ann}, "", true)
	if why != nil || !makes(t, r, "go") {
		t.Fatal(why)
	}
	f, err := g.Fork(runs.Forking{Run: r.Name})
	if err != nil {
		t.Fatal(err)
	}
	if own, why := find(g, f.Secret, ann); own != f.Run {
		t.Error(why)
	}
}
