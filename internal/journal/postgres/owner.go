package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// errLost is why a run cannot be taken between two leases.
var errLost = errors.New("another process has ended the lease that this one had of the database, and it takes no runs until it has another one")

// seen is how a run stood when it was looked at.
type seen struct {
	ended  bool
	by     journal.Tenure
	there  bool // the owner's lease has a row
	goesOn bool // and is not past its end
	peer   journal.Peer
	mine   bool // this process has its lease
}

const (
	look = `SELECT r.ended IS NOT NULL, r.owner, r.fence, l.no IS NOT NULL, coalesce(l.ends > now(), false), coalesce(l.holder, ''), coalesce(l.address, ''), coalesce(l.key, ''),
		EXISTS (SELECT 1 FROM fsm_proxy.leases WHERE no = $2) FROM fsm_proxy.runs r LEFT JOIN fsm_proxy.leases l ON l.no = r.owner WHERE r.id = $1`

	// endLease works only past the end of a lease. Its process cannot renew it any more.
	endLease = "DELETE FROM fsm_proxy.leases WHERE no = $1 AND ends <= now()"

	// takeRun is for a run as it was seen: whose it was has no lease any more, and numbers of leases never come again.
	takeRun = `UPDATE fsm_proxy.runs SET owner = $2, fence = fence + 1 WHERE id = $1 AND owner = $3 AND fence = $4
		AND (owner = $2 OR ended IS NOT NULL OR NOT EXISTS (SELECT 1 FROM fsm_proxy.leases WHERE no = $3))
		AND EXISTS (SELECT 1 FROM fsm_proxy.leases WHERE no = $2) RETURNING ` + rowColumns

	release = `UPDATE fsm_proxy.runs r SET owner = 0 FROM unnest($1::text[], $2::bigint[], $3::bigint[]) x (id, owner, fence)
		WHERE r.id = x.id AND r.owner = x.owner AND r.fence = x.fence`
)

// Take implements [journal.Shared]. What was to be written under an earlier tenure of the run is not, this process's own
// not either.
func (s *Store) Take(ctx context.Context, run string) (journal.Row, error) {
	for {
		me := s.Lease()
		x, err := s.look(ctx, run, me)
		if err == nil && !x.ended {
			err = s.mayTake(ctx, run, x, me)
		}
		if err != nil {
			return journal.Row{}, err
		}
		r, err := s.row(ctx, takeRun, run, me, x.by.Lease, x.by.Fence)
		s.forget(run)
		if !errors.Is(err, journal.ErrNone) { // else somebody else was sooner
			return r, err
		}
	}
}

// forget has what is known of a run be looked up when it is written next.
func (s *Store) forget(run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, run)
}

// look looks at a run.
func (s *Store) look(ctx context.Context, run string, me int64) (x seen, err error) {
	if s.isClosed() || me == 0 {
		return x, journal.ErrClosed
	}
	var key []byte
	err = s.pool.QueryRow(ctx, look, run, me).Scan(&x.ended, &x.by.Lease, &x.by.Fence, &x.there, &x.goesOn, &x.peer.Holder, &x.peer.Address, &key, &x.mine)
	copy(x.peer.Key[:], key)
	x.peer.Lease = x.by.Lease
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = journal.ErrNone
	case err == nil && !x.mine:
		err = errLost
	}
	return x, err
}

// mayTake finds out whether a run is this process's or free, and ends the lease of whose it was past its end: the run's update
// tells whether that has worked. Where this process ends it releases a run of its own, which has left memory: nobody would give
// it away.
func (s *Store) mayTake(ctx context.Context, run string, x seen, me int64) error {
	ending := s.ending.Load()
	switch {
	case x.by.Lease == me && ending:
		if err := s.Release(ctx, map[string]journal.Tenure{run: x.by}); err != nil {
			return err
		}
		return &journal.Elsewhere{Run: run}
	case x.by.Lease == me:
		return nil
	case x.goesOn:
		return &journal.Elsewhere{Run: run, By: x.peer}
	case ending:
		return &journal.Elsewhere{Run: run}
	case x.there:
		_, err := s.pool.Exec(ctx, endLease, x.by.Lease)
		return err
	}
	return nil
}

// Release implements [journal.Shared], in one statement.
func (s *Store) Release(ctx context.Context, runs map[string]journal.Tenure) error {
	if s.isClosed() {
		return journal.ErrClosed
	}
	var ids []string
	var owners, fences []int64
	for id, t := range runs {
		if t.Lease != 0 && s.had(t.Lease) {
			ids, owners, fences = append(ids, id), append(owners, t.Lease), append(fences, t.Fence)
		}
	}
	if ids == nil {
		return nil
	}
	_, err := s.pool.Exec(ctx, release, ids, owners, fences)
	return err
}

// had reports whether a lease is or was this process's.
func (s *Store) had(lease int64) bool {
	t := s.term.Load()
	return t != nil && t.has(lease)
}

// Peers implements [journal.Shared], in the order of their numbers.
func (s *Store) Peers(ctx context.Context) ([]journal.Peer, error) {
	if s.isClosed() {
		return nil, journal.ErrClosed
	}
	rows, err := s.pool.Query(ctx, "SELECT no, holder, address, key FROM fsm_proxy.leases WHERE ends > now() ORDER BY no")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p journal.Peer, err error) {
		var key []byte
		err = row.Scan(&p.Lease, &p.Holder, &p.Address, &key)
		copy(p.Key[:], key)
		return p, err
	})
}

// End implements [journal.Shared].
func (s *Store) End() { s.ending.Store(true) }

// Fenced is how many changes were refused because somebody else has written or taken what they are about, or this process's lease
// was ended.
func (s *Store) Fenced() uint64 { return s.fenced.Load() }
