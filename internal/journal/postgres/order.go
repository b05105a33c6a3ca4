package postgres

import (
	"context"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

const (
	// comes has a policy come last that is new, or stands before what it replaces, or that the only process starts with.
	comes = `INSERT INTO fsm_proxy.policies AS p (digest) VALUES ($1)
		ON CONFLICT (digest) DO UPDATE SET came = nextval('fsm_proxy.policy_numbers')
		WHERE p.came < (SELECT came FROM fsm_proxy.policies WHERE digest = $2)
			OR $2 = '' AND NOT EXISTS (SELECT 1 FROM fsm_proxy.leases WHERE no <> $3 AND ends > now())`

	succeeds = `SELECT coalesce((SELECT came FROM fsm_proxy.policies WHERE digest = $1), 0)
		> coalesce((SELECT came FROM fsm_proxy.policies WHERE digest = $2), 0)`
)

// Enforced implements [journal.Shared]. Of a process that has the database alone nothing is noted: all runs go by what it enforces.
func (s *Store) Enforced(ctx context.Context, policy, before string) error {
	me := s.Lease()
	switch {
	case s.isClosed() || me == 0:
		return journal.ErrClosed
	case s.cfg.alone():
		return nil
	}
	_, err := s.pool.Exec(ctx, comes, policy, before, me)
	return err
}

// Succeeds implements [journal.Shared].
func (s *Store) Succeeds(ctx context.Context, policy, other string) (later bool, err error) {
	switch {
	case s.isClosed():
		return false, journal.ErrClosed
	case s.cfg.alone():
		return true, nil
	}
	err = s.pool.QueryRow(ctx, succeeds, policy, other).Scan(&later)
	return later, err
}
