package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// term is a lease that this process has, and up to when it may act by it.
type term struct {
	no    int64
	until time.Duration // by elapsed; 0: it was lost
	past  []int64       // the leases that it had before
}

// has reports whether a lease is or was this process's.
func (t *term) has(lease int64) bool { return t.no == lease || slices.Contains(t.past, lease) }

// trust is for how long a process acts by its lease: for less time than the database keeps it, by another clock, and as of
// before the database was asked for it.
func (c *Config) trust() time.Duration { return c.Lease / 4 * 3 }

// alone reports whether the process has the database alone.
func (c *Config) alone() bool { return c.Peer.Address == "" }

// Lease implements [journal.Shared]. It is 0 for a reader.
func (s *Store) Lease() int64 {
	if t := s.term.Load(); t != nil {
		return t.no
	}
	return 0
}

// Alone implements [journal.Shared].
func (s *Store) Alone() bool { return s.cfg.alone() }

// Trusts implements [journal.Shared]. A process that has the database alone goes on until another one has taken it: what that
// one would not have it do fails when it is written.
func (s *Store) Trusts(lease int64) bool {
	t := s.term.Load()
	return t != nil && t.no == lease && (elapsed() < t.until || t.until != 0 && s.cfg.alone())
}

// patiently tries what another process may be in the way of, for as long as that needs to let go, or its lease to end.
func (s *Store) patiently(ctx context.Context, try func(context.Context) error) error {
	for until := time.Now().Add(s.cfg.Lease + s.cfg.Lease/4); ; {
		err := try(ctx)
		if _, held := errors.AsType[*journal.Held](err); !held || time.Now().After(until) {
			return err
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

const (
	// inTurn has one lease be taken after the other: the transaction, which is one batch, has the row.
	inTurn = "SELECT 1 FROM fsm_proxy.meta WHERE name = 'schema' FOR UPDATE"

	endAll = "DELETE FROM fsm_proxy.leases WHERE ends <= now()"

	// forgetAgreed forgets what processes have agreed on once none of them goes on.
	forgetAgreed = "DELETE FROM fsm_proxy.meta WHERE name IN ('finds', 'record_key') AND NOT EXISTS (SELECT 1 FROM fsm_proxy.leases)"

	// takeLease agrees on what is not agreed on yet, as where the others are of an earlier version.
	takeLease = `WITH own (name, value) AS (VALUES ('finds', $6::bigint), ('record_key', $7::bigint)),
		taken AS (INSERT INTO fsm_proxy.leases (holder, ends, alone, address, key) SELECT $1, now() + $2, $3, $4, $5
			WHERE NOT EXISTS (SELECT 1 FROM fsm_proxy.leases WHERE alone OR $3)
			AND NOT EXISTS (SELECT 1 FROM fsm_proxy.meta m JOIN own USING (name) WHERE m.value <> own.value) RETURNING no),
		agreed AS (INSERT INTO fsm_proxy.meta SELECT own.name, own.value FROM own, taken ON CONFLICT DO NOTHING)
		SELECT no FROM taken`

	inTheWay = `SELECT holder, NOT alone, EXISTS (SELECT 1 FROM fsm_proxy.meta WHERE name = 'finds' AND value <> $1)
		FROM fsm_proxy.leases ORDER BY alone DESC, no LIMIT 1`

	// renewLease never has a lease end sooner: of renewals that had to wait in the database the older one may be the last.
	renewLease = "UPDATE fsm_proxy.leases SET ends = greatest(ends, now() + $2) WHERE no = $1"

	// changeNothing takes as long as a renewal, also where commits are slow: the lock of a row is written and committed, too.
	changeNothing = "SELECT 1 FROM fsm_proxy.meta WHERE name = 'schema' FOR SHARE"
)

// take takes a lease, and ends those that are past their end. The error is a [journal.Held] where one goes on that is alone, or
// this one is to be and another goes on, or they do not agree.
func (s *Store) take(ctx context.Context) error {
	asked, alone := elapsed(), s.cfg.alone()
	var key []byte
	if key = s.cfg.Peer.Key[:]; alone {
		key = []byte{}
	}
	finds, recordKey := fingerprint(s.cfg.Finds), fingerprint(s.cfg.RecordKey)
	b := &pgx.Batch{}
	b.Queue(inTurn)
	b.Queue(endAll)
	b.Queue(forgetAgreed)
	b.Queue(takeLease, s.cfg.Holder, s.cfg.Lease, alone, s.cfg.Peer.Address, key, finds, recordKey)
	b.Queue(inTheWay, finds)
	results := s.pool.SendBatch(ctx, b)
	var err error
	for i := 0; i < 3 && err == nil; i++ {
		_, err = results.Exec()
	}
	var no int64
	if err == nil {
		err = results.QueryRow().Scan(&no)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		var by string
		var shares, otherwise bool
		switch err = results.QueryRow().Scan(&by, &shares, &otherwise); {
		case err == nil:
			err = &journal.Held{By: by, Do: toDo(alone, shares, otherwise)}
		case errors.Is(err, pgx.ErrNoRows): // its lease was ended between the two
			err = &journal.Held{By: "a process that has just let it go", Do: "try again"}
		}
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	var past []int64
	if t := s.term.Load(); t != nil {
		past = append(slices.Clone(t.past), t.no)
	}
	s.term.Store(&term{no: no, until: asked + s.cfg.trust(), past: past})
	return nil
}

// toDo is what to do about a process that is in the way, by whether this one is to have the database alone, that one shares it,
// and requests find their runs otherwise there.
func toDo(alone, shares, otherwise bool) string {
	switch {
	case !shares:
		return "it has the database alone: stop it, or name another database by --store; to share one, start each process with --listen and --peer-listen"
	case alone:
		return "it has --peer-listen: give --listen and --peer-listen to share the database, or stop all that do, or name another one by --store"
	case otherwise:
		return "its clients find their runs by another --run-key: give the same, or stop all that share the database before this one is started"
	}
	return "its records are hashed by another --record-key, or one of the two has none: give the same file, since by another key none of its runs can be read"
}

// fingerprint stands in the database for what processes have to agree on.
func fingerprint(text string) int64 {
	hash := sha256.Sum256([]byte(text))
	return int64(binary.BigEndian.Uint64(hash[:]))
}

// answers finds out whether the database confirms a change within a quarter of the lease.
func (s *Store) answers(ctx context.Context) error {
	within, stop := context.WithTimeout(ctx, s.cfg.Lease/4)
	defer stop()
	_, err := s.pool.Exec(within, changeNothing)
	return err
}

// renew renews the lease, also past its end: as long as it has a row nobody has ended it. It reports whether it has. Nothing is
// prepared first: it is one round trip, as that of answers.
func (s *Store) renew(ctx context.Context) (bool, error) {
	asked, t := elapsed(), *s.term.Load()
	done, err := s.pool.Exec(ctx, renewLease, pgx.QueryExecModeExec, t.no, s.cfg.Lease)
	if err != nil {
		return true, err
	}
	if t.until = asked + s.cfg.trust(); done.RowsAffected() == 0 {
		t.until = 0
	}
	s.term.Store(&t)
	return t.until != 0, nil
}

// keep renews the lease at each quarter of it. Where it was ended a process that shares the database takes another one. One that
// shares it, and may not act by its lease, does either only once the database answers in time: else renewals that are done, but
// confirmed too late, would keep its runs from others for ever.
func (s *Store) keep(ctx context.Context) {
	defer close(s.stopped)
	quarter := s.cfg.Lease / 4
	ticker := time.NewTicker(quarter)
	defer ticker.Stop()
	for has := true; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var err error
		if !s.Trusts(s.Lease()) {
			err = s.answers(ctx)
		}
		within, stop := context.WithTimeout(ctx, quarter) // one that hangs is not in the way of the next
		if err == nil && has {
			if has, err = s.renew(within); !has {
				s.lost()
			}
		}
		if err == nil && !has && !s.cfg.alone() {
			err = s.take(within)
			has = err == nil
		}
		stop()
		switch {
		case ctx.Err() != nil || !has && s.cfg.alone():
			return
		case err != nil && has:
			s.connectAnew(err)
			s.say("the lease of the database was not renewed, and is tried again", err)
		case err != nil:
			s.connectAnew(err)
			s.say("another lease of the database could not be taken, and is tried again", err)
		}
	}
}

// lost tells that the lease was ended by another process.
func (s *Store) lost() {
	if s.cfg.alone() {
		s.say("another process has the database now, and this one writes nothing more: end one of the two, and then start this one again if it is to go on", nil)
		return
	}
	s.say("another process has ended the lease of this one, which was not renewed in time: its runs may be taken, and it takes another lease", nil)
	if s.cfg.Lost != nil {
		s.cfg.Lost(s.Lease())
	}
}

func (s *Store) say(message string, err error) {
	if s.cfg.Log != nil {
		s.cfg.Log(message, err)
	}
}

// letGo ends the lease: its runs can be taken at once.
func (s *Store) letGo() error {
	t := *s.term.Load()
	t.until = 0
	s.term.Store(&t)
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Lease)
	defer cancel()
	if !s.cfg.alone() { // nobody is to believe that they were taken over
		if _, err := s.pool.Exec(ctx, "UPDATE fsm_proxy.runs SET owner = 0 WHERE owner = $1", t.no); err != nil {
			return err
		}
	}
	_, err := s.pool.Exec(ctx, "DELETE FROM fsm_proxy.leases WHERE no = $1", t.no)
	return err
}
