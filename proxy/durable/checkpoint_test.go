package durable_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

const counting = `
version: 1
initial: work
registers: {n: counter}
states: {work: {tools: {count: {set: {n: {add: 1}}}}}}
`

// edited is a store in which somebody has edited records, and rows.
type edited struct {
	journal.Store
	record uint64
	row    func(*journal.Row)
	read   int // how many records were
}

func (s *edited) Records(ctx context.Context, id string, after uint64, limit int) ([]journal.Record, error) {
	records, err := s.Store.Records(ctx, id, after, limit)
	s.read += len(records)
	for i := range records {
		if records[i].Seq == s.record {
			records[i].Bytes = append([]byte(" "), records[i].Bytes...)
		}
	}
	return records, err
}

func (s *edited) Take(ctx context.Context, id string) (journal.Row, error) {
	row, err := s.Store.Take(ctx, id)
	if s.row != nil {
		s.row(&row)
	}
	return row, err
}

// A run is read from its last checkpoint on, however many entries it has had, and what is kept of before it is history.
func TestRunsAreReadFromTheirLastCheckpoint(t *testing.T) {
	p, findings := policy.Parse("test.yaml", []byte(counting))
	if p == nil {
		t.Fatal(findings)
	}
	const keep, calls = 10, 100
	for _, all := range []bool{false, true} {
		kept := &edited{Store: memory.New(0)}
		c := durable.Config{Journal: kept, Keep: keep, Compile: func([]byte) (*policy.Policy, error) { return p, nil }, Log: hclog.NewNullLogger()}
		if all {
			c.Keep = 0
		}
		s := durable.Open(c)
		defer s.Close(context.Background())
		if err := s.Keep(p, []byte("p")); err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1000, 0)
		key := durable.KeyOf("header", "a")
		place := s.Begin("R", key, wire.Principal{}, now)
		shared := &run.Shared{Checkpoint: keep}
		if s.Checkpoint() < keep || !all && s.Checkpoint() != keep {
			t.Errorf("a checkpoint each %d entries", s.Checkpoint())
		}
		r := run.New(run.Config{Policy: p, Lasts: true, Shared: shared}, now)
		write := func() {
			made := r.Made()
			ticket, err := place.Write(made, r.DueAhead(), now, nil)
			if err != nil {
				t.Fatal(err)
			}
			if <-ticket.Done(); ticket.Err() != nil {
				t.Fatal(ticket.Err())
			}
			for _, e := range made {
				if e.Pending() != nil {
					r.Durable(e.Pending(), now)
				}
			}
		}
		write()
		for range calls {
			c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: "count", Listed: true, Known: true}}
			r.Enter(c, 1, now)
			r.Begin(c, now)
			write()
			if _, _, err := r.Settle(c, run.End{Outcome: policy.Success}, now); err != nil {
				t.Fatal(err)
			}
			write()
		}
		row, err := kept.Row(t.Context(), "R")
		if err != nil || row.Last.Seq < 2*calls || row.Checkpoint == 0 || row.Last.Seq-row.Checkpoint > keep+1 || (row.Base.Seq == 0) != all || !all && row.Last.Seq-row.Base.Seq > 2*keep+3 {
			t.Fatalf("%+v, %v", row, err)
		}
		load := func(record uint64, edit func(*journal.Row)) (state string, err error) {
			kept.record, kept.row, kept.read = record, edit, 0
			l, _, err := s.Find(t.Context(), key)
			if err != nil {
				return "", err
			}
			if n := row.Last.Seq - row.Checkpoint + 2; uint64(kept.read) > n {
				t.Errorf("%d records are read, of %d", kept.read, n)
			}
			again := run.Replay(run.Config{Policy: p, Lasts: true, Shared: shared}, slices.Values(l.Entries), now)
			if again.Seq() != row.Last.Seq {
				t.Errorf("the last entry is %d, not %d", again.Seq(), row.Last.Seq)
			}
			return string(again.Registers().AppendJSON(nil)), nil
		}
		before := row.Checkpoint - 3
		if state, err := load(before, nil); err != nil || state != `{"n":100}` {
			t.Errorf("%s, %v", state, err)
		}
		if fault, err := journal.NewChain(nil).Verify(&row, journal.All(t.Context(), kept, "R")); err != nil || fault == nil || fault.Seq != before {
			t.Errorf("an edited record before the checkpoint: %v, %v", fault, err)
		}
		kept.record = 0
		if fault, err := journal.NewChain(nil).Verify(&row, journal.All(t.Context(), kept, "R")); err != nil || fault != nil {
			t.Error(fault, err)
		}
		for what, bad := range map[string]struct {
			record uint64
			row    func(*journal.Row)
		}{
			"the checkpoint is edited": {record: row.Checkpoint}, "one behind it is": {record: row.Last.Seq},
			"the row says another checkpoint": {row: func(r *journal.Row) { r.Checkpoint-- }}, "one that is not there": {row: func(r *journal.Row) { r.Checkpoint = r.Last.Seq + 5 }},
			"none where there has to be one": {row: func(r *journal.Row) { r.Checkpoint = 0; r.Base = journal.Point{Seq: row.Checkpoint} }},
		} {
			if _, err := load(bad.record, bad.row); err == nil {
				t.Errorf("%s, and the run goes on", what)
			} else if _, is := errors.AsType[*durable.Damaged](err); !is {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}
