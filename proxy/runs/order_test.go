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
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// common is a journal of several processes, each of which has it for itself in turn.
type common struct {
	*disk
	mu     sync.Mutex // guards what follows
	order  []string   // of policies
	broken error      // why the order cannot be read; nil: it can
	// released is how many runs were given away at a time.
	released []int
	alone    bool // one process has it
	swapped  int  // objects
}

var _ journal.Shared = (*common)(nil)

func (c *common) Alone() bool                                   { return c.alone }
func (c *common) Lease() int64                                  { return 1 }
func (c *common) Trusts(int64) bool                             { return true }
func (c *common) Peers(context.Context) ([]journal.Peer, error) { return nil, nil }
func (c *common) End()                                          {}

func (c *common) Release(_ context.Context, runs map[string]journal.Tenure) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = append(c.released, len(runs))
	return nil
}

func (c *common) Commit(ctx context.Context, changes []journal.Change) ([]error, error) {
	c.mu.Lock()
	for i := range changes {
		for _, o := range changes[i].Objects {
			if o.Swap {
				c.swapped++
			}
		}
	}
	c.mu.Unlock()
	return c.disk.Commit(ctx, changes)
}

// stands is where a policy stands in the order; 0: nowhere.
func (c *common) stands(digest string) int {
	for i := len(c.order) - 1; i >= 0; i-- {
		if c.order[i] == digest {
			return i + 1
		}
	}
	return 0
}

func (c *common) Enforced(_ context.Context, policy, before string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.stands(policy); at == 0 || at < c.stands(before) {
		c.order = append(c.order, policy)
	}
	return nil
}

func (c *common) Succeeds(_ context.Context, policy, other string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stands(policy) > c.stands(other), c.broken
}

func (c *common) breaks(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = err
}

// replica is a process that starts with a policy.
func replica(t *testing.T, j journal.Store, text string) *process {
	t.Helper()
	log := hclog.NewNullLogger()
	s := durable.Open(durable.Config{Journal: j, Log: log, Compile: func(source []byte) (*policy.Policy, error) { return parse(t, string(source)), nil }})
	p := &process{s: s, t: t}
	p.Registry = runs.New(runs.Config{Policy: p.enforces(text), Store: s, Keys: keyed(runs.Key{Kind: runs.Handle}), Process: "it", Idle: time.Hour, Max: 10, MaxPerPrincipal: 10,
		MaxStranded: time.Hour, Log: log, Telemetry: &observe.Telemetry{}})
	t.Cleanup(p.ends)
	return p
}

// enforces keeps a policy that is about to come into force.
func (p *process) enforces(text string) *policy.Policy {
	p.t.Helper()
	next := parse(p.t, text)
	if err := p.s.Keep(next, []byte(text)); err != nil {
		p.t.Fatal(err)
	}
	return next
}

// orders are policies of which each calls the state otherwise that go leads to, and has a tool of its own there.
func orders(name string) string {
	var others []string
	for _, other := range []string{"first", "second", "third"} {
		if other != name {
			others = append(others, other+": "+name)
		}
	}
	return fmt.Sprintf("version: 1\ninitial: a\nstates: {a: {tools: {go: %[1]s}}, %[1]s: {tools: [only_%[1]s]}}\nrenamed: {%[2]s}\n", name, strings.Join(others, ", "))
}

// goesBy has a run be in the state of a policy, and be decided by that alone.
func goesBy(t *testing.T, r *runs.Run, name string) {
	t.Helper()
	if at := r.Where(); at.State() != name || at.Gate != nil || r.Info().Policy != parse(t, orders(name)).Digest() {
		t.Fatalf("the run is in %s by %s, and %v besides, want %s", at.State(), r.Info().Policy, at.Gate, name)
	}
	for _, other := range []string{"first", "second", "third"} {
		if makes(t, r, "only_"+other) != (other == name) {
			t.Errorf("only_%s: allowed is %v", other, other != name)
		}
	}
}

// A run moves only to a policy that came into force later than its own, in whichever process: one with an older one goes on
// with it by its own, and is moved by what comes into force later there.
func TestOrderOfPolicies(t *testing.T) {
	c := &common{disk: newDisk()}
	begin := func(p *process) string {
		t.Helper()
		id, err := p.Start(bridge.Stateless, wire.Principal{})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	read := func(p *process, id string) *runs.Run {
		t.Helper()
		r, why := find(p.Registry, id, wire.Principal{})
		if why != nil {
			t.Fatal(why)
		}
		return r
	}
	p := replica(t, c, orders("first"))
	id := begin(p)
	r := read(p, id)
	if !makes(t, r, "go") {
		t.Fatal("go is refused")
	}
	goesBy(t, r, "first")
	p.ends()

	p = replica(t, c, orders("second"))
	goesBy(t, read(p, id), "second")
	p.ends()

	p = replica(t, c, orders("first"))
	r = read(p, id)
	goesBy(t, r, "second")
	f, err := p.Fork(runs.Forking{Run: r.Name})
	if err != nil {
		t.Fatal(err)
	}
	goesBy(t, f.Run, "second")
	if _, err := r.Restart(run.Remark{}); err != nil || !makes(t, r, "go") { // by its own policy, too
		t.Fatal(err)
	}
	goesBy(t, r, "second")
	other := begin(p)
	if r := read(p, other); !makes(t, r, "go") {
		t.Fatal("go is refused")
	}
	goesBy(t, read(p, other), "first")
	if done := p.Reload(p.enforces(orders("third"))); done.Runs != 3 || done.Moved != 3 {
		t.Errorf("%+v", done)
	}
	goesBy(t, r, "third")
	p.ends()

	p = replica(t, c, orders("first")) // which has not seen the second one yet
	r = read(p, id)
	goesBy(t, r, "third")
	own := read(p, begin(p))
	if !makes(t, own, "go") {
		t.Fatal("go is refused")
	}
	if done := p.Reload(p.enforces(orders("second"))); done.Runs != 2 || done.Moved != 1 {
		t.Errorf("%+v", done)
	}
	goesBy(t, r, "third")
	goesBy(t, own, "second")
	if done := p.Reload(p.enforces(orders("first"))); done.Runs != 2 || done.Moved != 2 { // back, which is later than all
		t.Errorf("%+v", done)
	}
	goesBy(t, r, "first")
	goesBy(t, own, "first")
	p.ends()

	p = replica(t, c, orders("second"))
	c.breaks(errors.New("the database is away"))
	if _, why := find(p.Registry, id, wire.Principal{}); why == nil || why.Code != policy.StoreUnavailable {
		t.Errorf("a run is read of which nobody knows by what it goes: %v", why)
	}
	c.breaks(nil)
	goesBy(t, read(p, id), "first")
	p.ends()
}
