package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// take takes the database's one lease, as soon as it is free or has ended, and waits for that as long as a lease is.
func (s *Store) take(ctx context.Context) error {
	for until := time.Now().Add(s.cfg.Lease + s.cfg.Lease/4); ; {
		err := s.pool.QueryRow(ctx, `INSERT INTO fsm_proxy.leases AS l (holder, ends) VALUES ($1, now() + $2)
			ON CONFLICT (only_one) DO UPDATE SET no = excluded.no, holder = excluded.holder, ends = excluded.ends WHERE l.ends <= now()
			RETURNING no`, s.cfg.Holder, s.cfg.Lease).Scan(&s.lease)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if time.Now().After(until) {
			held := &journal.Held{By: "another process"}
			_ = s.pool.QueryRow(ctx, "SELECT holder FROM fsm_proxy.leases").Scan(&held.By) // it may have let go just now
			return held
		}
		timer := time.NewTimer(s.cfg.Lease / 10)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// renew renews the lease at each quarter of it, also after its end: as long as the row has its number nobody has taken
// the database meanwhile.
func (s *Store) renew(ctx context.Context) {
	defer close(s.stopped)
	ticker := time.NewTicker(s.cfg.Lease / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		done, err := s.pool.Exec(ctx, "UPDATE fsm_proxy.leases SET ends = now() + $2 WHERE no = $1", s.lease, s.cfg.Lease)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && done.RowsAffected() == 0:
			s.say("another process has the database now, and this one writes nothing more: end one of the two, and then start this one again if it is to go on", nil)
			return
		case err != nil:
			s.connectAnew(err)
			s.say("the lease of the database was not renewed, and is tried again", err)
		}
	}
}

func (s *Store) say(message string, err error) {
	if s.cfg.Log != nil {
		s.cfg.Log(message, err)
	}
}

// letGo ends the lease.
func (s *Store) letGo() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Lease)
	defer cancel()
	_, err := s.pool.Exec(ctx, "UPDATE fsm_proxy.leases SET ends = now() WHERE no = $1", s.lease)
	return err
}
