package runs_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
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
