package runs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// foreign is a journal that others write: what is to be written has no place there while it is taken.
type foreign struct {
	journal.Store
	taken atomic.Bool
}

func (f *foreign) Close() error { return nil }

func (f *foreign) Commit(ctx context.Context, changes []journal.Change) ([]error, error) {
	if !f.taken.Load() {
		return f.Store.Commit(ctx, changes)
	}
	each := make([]error, len(changes))
	for i := range each {
		each[i] = journal.ErrConflict
	}
	return each, nil
}

// A run whose beginning can never be written has not begun, whoever began it: that is said, and nobody finds it.
func TestRunsThatCannotBeWrittenHaveNotBegun(t *testing.T) {
	f := &foreign{Store: memory.New(0)}
	g := forking(t, f, 0, 100)
	r := began(t, g)
	makes(t, r, "go")
	f.taken.Store(true)
	for what, begin := range map[string]func() error{
		"a fork":            func() error { _, err := g.Fork(runs.Forking{Run: r.Name}); return err },
		"an operator's run": func() error { _, _, err := g.StartBy(runs.Beginning{Key: "handle"}); return err },
		"the process's run": func() error {
			_, _, err := g.StartBy(runs.Beginning{Key: "process", By: run.Remark{Who: "olga"}})
			return err
		},
		"a client's run":       func() error { _, err := g.Start(bridge.Stateless, ann); return err },
		"a client's run again": func() error { _, err := g.Start(bridge.Stateless, ann); return err },
	} {
		err := begin()
		why, _ := err.(*runs.Missing)
		wantUnavailable(t, what, why)
		if all := g.Infos(); len(all) != 1 || all[0].Name != r.Name {
			t.Errorf("%s: the runs are %+v", what, all)
		}
	}
	f.taken.Store(false)
	if _, err := g.Fork(runs.Forking{Run: r.Name}); err != nil {
		t.Error(err)
	}
	if _, _, err := g.StartBy(runs.Beginning{Key: "process"}); err != nil {
		t.Error(err)
	}
}

// A client that ends its run is told where that is not kept: over a store that cannot be written the run goes on, and over
// one that takes too long, or has something else in its place, it cannot be known whether it will be there again.
func TestEndThatIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		f := &foreign{Store: d}
		p := kept(t, f, runs.Config{Keys: keyed(runs.Key{Kind: runs.Handle})})
		end := func(what string, prepare func(), text string) (id string) {
			id, err := p.Start(bridge.Stateless, ann)
			if err != nil {
				t.Fatal(err)
			}
			prepare()
			why := ends(t, p.Registry, id, ann)
			wantUnavailable(t, what, why)
			if why != nil && !strings.Contains(why.Text, text) {
				t.Errorf("%s: %s", what, why.Text)
			}
			return id
		}
		id := end("a store that cannot be written", func() {
			d.fill(errors.New("no space left on device"))
			if _, err := p.s.KeepSession("another", []byte("{}")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}, "Nothing was done")
		d.fill(nil)
		for p.s.Down() != nil {
			time.Sleep(time.Second) // as the store is tried
		}
		if _, why := find(p.Registry, id, ann); why != nil {
			t.Error(why)
		}
		if why := ends(t, p.Registry, id, ann); why != nil {
			t.Error(why)
		}
		end("a store that is slow", d.stops, "has ended")
		d.goesOn()
		mustWrite(t, p.s)
		end("a store of somebody else", func() { f.taken.Store(true) }, "has ended")
		f.taken.Store(false)
	})
}

// A run that is shut says that of each call, and to operators: no reload took its state.
func TestShutRunSaysWhy(t *testing.T) {
	f := &foreign{Store: memory.New(0)}
	g := forking(t, f, 0, 100)
	r := began(t, g)
	f.taken.Store(true)
	first := &call{run.Call{Request: run.Request{Kind: policy.Tool, Name: "go", Listed: true, Known: true}}}
	if a := r.Enter(first, 0); a != run.Admitted {
		t.Fatal(a)
	}
	wait, _, err := r.Begin(&first.Call)
	if err == nil && wait != nil {
		err = wait()
	}
	if err == nil {
		t.Error("a call begins of which nothing is kept")
	}
	f.taken.Store(false)
	for range 2 {
		c := &call{run.Call{Request: first.Request}}
		if a := r.Enter(c, 0); a != run.Refused || c.Verdict.Code != policy.StoreUnavailable {
			t.Error(a, c.Verdict.Code)
		}
		r.Leave(&c.Call)
	}
	if all := g.Infos(); len(all) != 1 || !all[0].Shut {
		t.Errorf("%+v", all)
	}
}

// late is a journal that others write as well: what is to be written of a run that they have taken is refused, and whether they have it
// is found out once that may be known.
type late struct {
	*common
	taken atomic.Bool
	known chan struct{} // closed once it may be
	left  bool          // whether they have it
}

func (l *late) Commit(ctx context.Context, changes []journal.Change) ([]error, error) {
	if !l.taken.Load() {
		return l.common.Commit(ctx, changes)
	}
	each := make([]error, len(changes))
	for i := range each {
		each[i] = journal.ErrConflict
	}
	return each, nil
}

func (l *late) Row(ctx context.Context, id string) (journal.Row, error) {
	select {
	case <-l.known:
	case <-ctx.Done():
		return journal.Row{}, ctx.Err()
	}
	row, err := l.common.Row(ctx, id)
	row.Tenure = journal.Tenure{Lease: 1, Fence: 1}
	if l.left {
		row.Tenure = journal.Tenure{Lease: 2, Fence: 2}
	}
	return row, err
}

// Until it is known why something of a run was refused by a store that others write, too, its calls are told that others may have the
// run: what began too late was not sent, and of what was sent nobody knows. It is shut only where nobody else has it.
func TestRunThatOthersMayHave(t *testing.T) {
	for _, left := range []bool{true, false} {
		t.Run(fmt.Sprint(left), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &late{common: &common{disk: newDisk()}, known: make(chan struct{}), left: left}
				p := replica(t, l, two)
				defer p.ends()
				id, err := p.Start(bridge.Stateless, ann)
				if err != nil {
					t.Fatal(err)
				}
				r, why := find(p.Registry, id, ann)
				if why != nil {
					t.Fatal(why)
				}
				sent := entersAs(r, "go")
				begins(t, r, sent)
				l.taken.Store(true)
				if _, _, err := r.Settle(&sent.Call, run.End{Outcome: policy.Success}); !errors.Is(err, run.ErrLeft) {
					t.Errorf("what was sent has ended: %v", err)
				}
				if at := r.Where(); r.Acts() || !at.Lapsed || r.Lost() {
					t.Errorf("while it is not known who has it: %+v", at)
				}
				close(l.known)
				synctest.Wait()
				if at := r.Where(); r.Lost() != left || r.Acts() == left || at.Lapsed != left || !at.Shut {
					t.Errorf("once it is known: %+v", at)
				}
			})
		})
	}
}
