package journal_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
)

// paged is a store that is changed before the second page of records is read.
type paged struct {
	journal.Store
	pages  int
	change journal.Change
}

// Records implements [journal.Reader].
func (p *paged) Records(ctx context.Context, run string, after uint64, limit int) ([]journal.Record, error) {
	if p.pages++; p.pages == 2 {
		each, err := p.Commit(ctx, []journal.Change{p.change})
		if err = errors.Join(append(each, err)...); err != nil {
			return nil, err
		}
	}
	return p.Store.Records(ctx, run, after, limit)
}

// A run is read from its base to its last record without a hole, and again only where one was made.
func TestWhole(t *testing.T) {
	const last = 1500
	for name, x := range map[string]struct {
		change journal.Change
		times  int
	}{
		"what was read is cut off":     {journal.Change{Run: "r", Cut: 1000}, 1},
		"what was not read is cut off": {journal.Change{Run: "r", Cut: 1001}, 2},
		"all is cut off":               {journal.Change{Run: "r", Cut: last}, 2},
		"it is removed":                {journal.Change{Run: "r", Remove: true}, 1},
	} {
		s, r := &paged{Store: memory.New(0), change: x.change}, &run{id: "r"}
		begin := r.begin()
		begin.Head.Checkpoint = last
		changes := []journal.Change{begin}
		for range last {
			changes = append(changes, r.next("{}"))
		}
		each, err := s.Commit(t.Context(), changes)
		if err = errors.Join(append(each, err)...); err != nil {
			t.Fatal(err)
		}
		row, err := s.Row(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		times, at := 0, journal.Point{}
		err = journal.Whole(t.Context(), s, row, func(r *journal.Row, records iter.Seq2[journal.Record, error]) error {
			times++
			at = r.Base
			for x, err := range records {
				if err != nil {
					return err
				}
				if x.Seq == at.Seq+1 {
					at = journal.Point{Seq: x.Seq, Hash: x.Hash}
				}
			}
			return nil
		})
		if x.change.Remove {
			if !errors.Is(err, journal.ErrNone) || times != x.times {
				t.Errorf("%s: %v, read %d times", name, err, times)
			}
		} else if err != nil || times != x.times || at != row.Last {
			t.Errorf("%s: %v, read %d times up to %d", name, err, times, at.Seq)
		}
	}
}
