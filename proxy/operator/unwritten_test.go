package operator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/operator"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// slow is a store whose commits wait while somebody has it.
type slow struct {
	journal.Store
	free chan struct{} // has one while nobody has it
}

func (s *slow) Commit(ctx context.Context, changes []journal.Change) ([]error, error) {
	<-s.free
	defer func() { s.free <- struct{}{} }()
	return s.Store.Commit(ctx, changes)
}

// audit is what the audit is told, each in a word.
type audit struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (a *audit) tell(format string, args ...any) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, fmt.Sprintf(format, args...))
	return uint64(len(a.lines))
}

func (a *audit) Room() bool            { return true }
func (a *audit) Await(context.Context) {}

func (a *audit) Decided(d observe.Decision) { a.Begin(d) }

func (a *audit) Begin(d observe.Decision) uint64 {
	return a.tell("decision %s %q entry %d", d.Name, d.Fault, d.Seq)
}

func (a *audit) End(number uint64, _ observe.Peer, op *observe.Operation) {
	a.tell("outcome of %d: %s %q entry %d", number, op.Outcome, op.Fault, op.Seq)
}

func (a *audit) Entered(e observe.Entry) {
	if e.Type == "" {
		a.tell("%s of %s by %s in %s: %s", e.Verb, e.Run, e.Peer.Principal.Subject, e.From, e.Note)
		return
	}
	a.tell("entry %d %s", e.Seq, e.Type)
}

func (a *audit) wants(t *testing.T, want ...string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.lines, want) {
		t.Errorf("the audit is told\n%q\nand not\n%q", a.lines, want)
	}
}

// desk is where operators ask of one run, in a store that somebody may have, and what the audit is told of it.
func desk(t *testing.T) (d *operator.Desk, disk *slow, a *audit, end func()) {
	p, findings := policy.Parse("test.yaml", []byte("version: 1\ninitial: a\nstates: {a: {signals: {release: {from: operator, to: b}}}, b: {}}\n"))
	if p == nil {
		t.Fatal(findings)
	}
	disk, a = &slow{memory.New(0), make(chan struct{}, 1)}, &audit{}
	disk.free <- struct{}{}
	log, told := hclog.NewNullLogger(), &observe.Telemetry{Auditor: a}
	s := durable.Open(durable.Config{Journal: disk, Log: log, Compile: func([]byte) (*policy.Policy, error) { return p, nil }})
	if err := s.Keep(p, []byte("it")); err != nil {
		t.Fatal(err)
	}
	var keys [2]runs.Key
	keys[bridge.Stateless.Index()].Kind = runs.Handle
	g := runs.New(runs.Config{Policy: p, Keys: keys, Store: s, Idle: time.Hour, Max: 10, MaxPerPrincipal: 10, MaxStranded: time.Hour, Log: log, Telemetry: told})
	if _, err := g.Start(bridge.Stateless, wire.Principal{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return &operator.Desk{Runs: g, TurnTimeout: time.Minute, MaxQueue: 1, Ending: t.Context(), Log: log, Telemetry: told, Journal: a}, disk, a, func() {
		g.Close()
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// An operator's signal that is not written in time has its decision, and one line of its end that names the entry: whether
// that is written is known later.
func TestSignalThatIsNotWrittenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, disk, a, end := desk(t)
		defer end()
		r := d.Runs.All()[0]

		<-disk.free
		_, err := d.Send(t.Context(), operator.Signal{Run: r.Name, Name: "release"})
		no, _ := errors.AsType[*operator.Refused](err)
		if no == nil || no.Code != policy.OutcomeUnknown {
			t.Fatal(err)
		}
		want := []string{"entry 1 began", `decision release "" entry 0`, `outcome of 2: unknown "outcome_unknown" entry 2`}
		a.wants(t, want...)
		disk.free <- struct{}{}
		synctest.Wait()
		if at := r.Where().State(); at != "b" {
			t.Errorf("it is written, and the run is in %s", at)
		}
		a.wants(t, want...)
	})
}

// A run is given away, by itself or with all others, once nothing is under way in it, and the audit is told who has had that be
// done.
func TestRelease(t *testing.T) {
	for _, all := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d, disk, a, end := desk(t)
			defer end()
			r := d.Runs.All()[0]
			v := operator.Verb{Run: r.Name, Text: "ticket 12", From: observe.Peer{Principal: wire.Principal{Issuer: "admin", Subject: "olga"}}}
			release := func() (released bool) {
				if !all {
					_, err := d.Release(v)
					no, _ := errors.AsType[*operator.Refused](err)
					if no != nil && no.Why != operator.Busy {
						t.Error(no)
					}
					return err == nil
				}
				n, stay, err := d.ReleaseAll(v)
				if err != nil || n+stay != 1 {
					t.Errorf("%d have gone, %d stay: %v", n, stay, err)
				}
				return n == 1
			}
			<-disk.free
			var sent sync.WaitGroup
			sent.Go(func() { _, _ = d.Send(t.Context(), operator.Signal{Run: r.Name, Name: "release"}) }) // which is written late
			synctest.Wait()
			if release() || !d.Runs.Has(r) {
				t.Error("it is released while a signal is under way in it")
			}
			disk.free <- struct{}{}
			sent.Wait()
			if !release() || d.Runs.Has(r) {
				t.Error("it is not released")
			}
			a.mu.Lock()
			last := a.lines[len(a.lines)-1]
			a.mu.Unlock()
			if want := "release of " + r.Name + " by olga in b: ticket 12"; last != want {
				t.Errorf("the audit is told %q, want %q", last, want)
			}
		})
	}
}
