package durable

import (
	"context"
	"errors"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// ErrAhead is for an entry that a run does not have yet.
var ErrAhead = errors.New("the run has no such entry yet")

// Past is a run as it was after one of its entries.
type Past struct {
	*run.Past
	Of    run.Origin
	Owner wire.Principal
	Free  bool   // it is the first principal's who comes
	Key   string // the kind of it
}

// Past reads what a run was after an entry, 0 for its last one, whether or not anybody has it: all that was handed over
// before counts. The error is an [ErrAhead], a [run.ErrCut], a [Damaged], or a [journal.ErrNone]; or it cannot be read now.
func (s *Store) Past(ctx context.Context, id string, at uint64, shared *run.Shared) (*Past, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	for {
		row, err := s.cfg.Journal.Row(ctx, id)
		if err != nil {
			return nil, err
		}
		p, err := s.past(ctx, row, at, shared)
		if !IsDamaged(err) {
			return p, err
		}
		if again, wrong := s.cfg.Journal.Row(ctx, id); wrong != nil || again.Base == row.Base { // else more was cut off meanwhile
			return nil, errors.Join(err, wrong)
		}
	}
}

func (s *Store) past(ctx context.Context, row journal.Row, at uint64, shared *run.Shared) (*Past, error) {
	if at == 0 {
		at = row.Last.Seq
	}
	of := &Run{s: s, id: row.ID, row: row}
	if err := of.owned(ctx); err != nil {
		return nil, err
	}
	base := row.Base
	switch {
	case at > row.Last.Seq:
		return nil, ErrAhead
	case at <= row.Base.Seq:
		return nil, run.ErrCut
	case at >= row.Checkpoint:
		var err error
		if base, err = s.origin(ctx, &row); err != nil {
			return nil, err
		}
	}
	p := &Past{Of: run.Origin{Run: row.ID, Seq: at}, Owner: of.Owner(), Free: of.IsFree(), Key: row.Key.Kind}
	p.Past = run.NewPast(p.Of, shared)
	return p, s.verified(ctx, &row, base, row.Last.Seq, func(e *run.Entry) { p.Add(e) })
}

// BeginFork is [Store.Begin] for a run that is forked of another.
func (s *Store) BeginFork(id string, key journal.Key, owner wire.Principal, of run.Origin, now time.Time) *Run {
	r := s.Begin(id, key, owner, now)
	r.row.Parent, r.row.Fork = of.Run, of.Seq
	return r
}
