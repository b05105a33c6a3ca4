package durable_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
)

// replicas is a journal that several processes write, as one of them has it.
type replicas struct {
	broken
	has    map[string]journal.Tenure // the runs that this process has
	fences int64
	taken  func(r *journal.Row) // is called when a run was taken
}

var _ journal.Shared = (*replicas)(nil)

func (*replicas) Alone() bool                                            { return false }
func (*replicas) Lease() int64                                           { return 7 }
func (*replicas) Trusts(int64) bool                                      { return true }
func (*replicas) Peers(context.Context) ([]journal.Peer, error)          { return nil, nil }
func (*replicas) End()                                                   {}
func (*replicas) Enforced(context.Context, string, string) error         { return nil }
func (*replicas) Succeeds(context.Context, string, string) (bool, error) { return true, nil }

func (s *replicas) Take(ctx context.Context, run string) (journal.Row, error) {
	r, err := s.Store.Take(ctx, run)
	if err == nil {
		s.fences++
		r.Tenure = journal.Tenure{Lease: s.Lease(), Fence: s.fences}
		s.has[run] = r.Tenure
		s.taken(&r)
	}
	return r, err
}

func (s *replicas) Release(_ context.Context, runs map[string]journal.Tenure) error {
	for id, t := range runs {
		if s.has[id] == t {
			delete(s.has, id)
		}
	}
	return nil
}

// A run that is taken to be removed, and then is not, is free for any process: somebody has used it meanwhile, or it cannot be
// removed now.
func TestForgottenOrFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &replicas{broken: broken{Store: memory.New(0)}, has: map[string]journal.Tenure{}}
		for _, id := range []string{"idle", "used"} {
			begin := journal.Change{Run: id, Begin: &journal.Row{ID: id, Began: noon}, Head: &journal.Head{State: "a", Policy: "p", Used: noon}}
			if each, err := j.Store.Commit(t.Context(), []journal.Change{begin}); err != nil || each[0] != nil {
				t.Fatal(each, err)
			}
		}
		s := durable.Open(durable.Config{Journal: j, Log: hclog.NewNullLogger()})
		forget := func() (int, error) {
			return s.Forget(t.Context(), time.Time{}, noon.Add(time.Hour), func(journal.Key) bool { return false })
		}
		j.taken = func(r *journal.Row) {
			if r.ID == "used" {
				r.Used = noon.Add(2 * time.Hour)
			}
		}
		if n, err := forget(); n != 1 || err != nil {
			t.Errorf("%d are removed: %v", n, err)
		}
		if has := slices.Collect(maps.Keys(j.has)); !slices.Equal(has, []string{"idle"}) {
			t.Errorf("it keeps %q", has)
		}
		keep(t, s, "written when all before is", nil)
		delete(j.has, "idle")

		j.taken = func(*journal.Row) {}
		j.is.Store(true)
		if _, err := s.KeepSession("it", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n, err := forget(); n != 0 || err == nil || len(j.has) != 0 {
			t.Errorf("%d are removed: %v, and it keeps %v", n, err, j.has)
		}
		j.is.Store(false)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
