package runs_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// member is a session that counts what it is told.
type member struct {
	client       bool
	busy         atomic.Bool
	told, closed atomic.Int32
}

func (m *member) Changed(run.Shifts) { m.told.Add(1) }
func (m *member) Client() bool       { return m.client }
func (m *member) Busy() bool         { return m.busy.Load() }
func (m *member) Close()             { m.closed.Add(1) }

func parse(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, findings := policy.Parse("policy.yaml", []byte(text))
	if p == nil {
		t.Fatal(findings)
	}
	return p
}

const two = "version: 1\ninitial: a\nstates: {a: {tools: {go: b}}, b: {tools: [stay]}}\n"

func byHandle(t *testing.T) *runs.Registry {
	t.Helper()
	var keys [2]runs.Key
	keys[bridge.Stateless.Index()].Kind = runs.Handle
	return runs.New(runs.Config{Policy: parse(t, two), Keys: keys,
		Idle: time.Hour, Age: 24 * time.Hour, Max: 3, MaxPerPrincipal: 2, MaxStranded: time.Hour, Log: hclog.NewNullLogger(), Telemetry: &observe.Telemetry{}})
}

var (
	ann = wire.Principal{Issuer: "i", Subject: "ann"}
	bob = wire.Principal{Issuer: "i", Subject: "bob"}
)

func find(g *runs.Registry, id string, who wire.Principal) (*runs.Run, *runs.Missing) {
	return g.Find(bridge.Stateless, &observe.Peer{Principal: who}, id, false)
}

// ends has a client end a run.
func ends(t *testing.T, g *runs.Registry, id string, who wire.Principal) *runs.Missing {
	t.Helper()
	r, why := find(g, id, who)
	if why != nil {
		t.Fatal(why)
	}
	return g.End(r)
}

// A run that has ended is found no more, and nobody comes to be on it who found it before.
func TestNobodyJoinsARunThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := byHandle(t)
		defer g.Close()
		id, err := g.Start(bridge.Stateless, ann)
		if err != nil {
			t.Fatal(err)
		}
		r, why := find(g, id, ann)
		if why != nil {
			t.Fatal(why)
		}
		on := &member{}
		serves := func() runs.Member { return on }
		if m, _ := g.Serve(r, serves); m != runs.Member(on) || r.Server() != runs.Member(on) {
			t.Fatal("its requests have no session")
		}
		if g.End(r) != nil || on.closed.Load() != 1 {
			t.Errorf("it was not ended, or its session closed %d times", on.closed.Load())
		}
		if _, why := find(g, id, ann); why != runs.ErrNotFound {
			t.Errorf("it is found: %v", why)
		}
		nobodyJoins(t, g, r, func(why *runs.Missing) bool { return why == runs.ErrNotFound })
		g.Part(r, on, false)
		if n := len(g.All()); n != 0 {
			t.Errorf("%d runs are left", n)
		}
	})
}

// nobodyJoins wants nobody to come to be on a run who found it before, and each to hear why.
func nobodyJoins(t *testing.T, g *runs.Registry, r *runs.Run, is func(why *runs.Missing) bool) {
	t.Helper()
	_, why := g.Serve(r, func() runs.Member { t.Error("a session is made"); return &member{} })
	if joins := g.Join(r, &member{client: true}); r.Server() != nil || why == nil || joins == nil || !is(why) || !is(joins) {
		t.Errorf("somebody comes to be on it: %v, %v", why, joins)
	}
}

// The bounds are of all runs and of each principal's, and an end makes room.
func TestBoundsOfRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := byHandle(t)
		defer g.Close()
		var ids []string
		for _, who := range []wire.Principal{ann, ann, bob} {
			id, err := g.Start(bridge.Stateless, who)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		if _, err := g.Start(bridge.Stateless, bob); err == nil {
			t.Error("there is a fourth run")
		}
		ends(t, g, ids[2], bob)
		if _, err := g.Start(bridge.Stateless, ann); err == nil {
			t.Error("one principal has three")
		}
		if _, err := g.Start(bridge.Stateless, bob); err != nil {
			t.Error(err)
		}
	})
}

// A run expires that nobody uses, and its owner alone is told; what a client is on, or a request is
// under way for, stays.
func TestRunsExpireUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := byHandle(t)
		defer g.Close()
		unused, _ := g.Start(bridge.Stateless, ann)
		used, _ := g.Start(bridge.Stateless, bob)
		r, _ := find(g, used, bob)
		serves := &member{}
		serves.busy.Store(true)
		g.Serve(r, func() runs.Member { return serves })
		time.Sleep(3 * time.Hour)
		if _, why := find(g, unused, ann); why != runs.ErrExpired {
			t.Errorf("its owner is told: %v", why)
		}
		if _, why := find(g, unused, bob); why != runs.ErrNotFound {
			t.Errorf("another is told: %v", why)
		}
		if _, why := find(g, used, bob); why != nil {
			t.Errorf("a run in use has expired: %v", why)
		}
		serves.busy.Store(false)
		time.Sleep(3 * time.Hour)
		if _, why := find(g, used, bob); why != runs.ErrExpired || serves.closed.Load() != 1 {
			t.Errorf("once nobody uses it: %v, closed %d times", why, serves.closed.Load())
		}
	})
}

// A reload moves each run, or strands it, and tells those who are on it.
func TestReloadOfAllRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := byHandle(t)
		defer g.Close()
		r := g.OfSession("s1")
		on := &member{client: true}
		g.Join(r, on)
		if done := g.Reload(parse(t, two)); done != (runs.Reloaded{Runs: 1, Moved: 1}) {
			t.Errorf("to the like: %+v", done)
		}
		gone := parse(t, "version: 1\ninitial: c\nstates: {c: {tools: [stay]}}\n")
		if done := g.Reload(gone); done != (runs.Reloaded{Runs: 1, Stranded: 1}) {
			t.Errorf("to one without its state: %+v", done)
		}
		if i := r.Info(); i.State != "a" || i.Stranded.IsZero() || i.Name != "s1" || i.Sessions != 1 {
			t.Errorf("it stands: %+v", i)
		}
		before := on.told.Load()
		if done := g.Migrate(); done != (runs.Migrated{Runs: 1, Restarted: 1}) || r.Where().State() != "c" || on.told.Load() == before {
			t.Errorf("migrated %+v to %s, told %d times", done, r.Where().State(), on.told.Load()-before)
		}
	})
}

// Whose a run is may be asked while its first principal comes.
func TestInfosWhileARunFindsItsOwner(t *testing.T) {
	var keys [2]runs.Key
	keys[bridge.Stateless.Index()].Kind = runs.Path
	g := runs.New(runs.Config{Policy: parse(t, two), Keys: keys,
		Idle: time.Hour, Age: 24 * time.Hour, Max: 3, MaxPerPrincipal: 2, MaxStranded: time.Hour, Log: hclog.NewNullLogger(), Telemetry: &observe.Telemetry{}})
	defer g.Close()
	id, err := g.Start(bridge.Stateless, wire.Principal{})
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan struct{})
	go func() {
		defer close(came)
		g.Find(bridge.Stateless, &observe.Peer{Principal: ann, Run: id}, "", false)
	}()
	g.Infos()
	<-came
	if got := g.Infos()[0].Owner; got != ann {
		t.Errorf("the run is %v's, want %v's", got, ann)
	}
}
