// Package postgres keeps runs in a database of PostgreSQL (https://www.postgresql.org).
package postgres

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// Config is how a database is opened.
type Config struct {
	URL    string        // as libpq has it
	Lease  time.Duration // for how long this process's lease goes on without another word; 0: [journal.DefaultLease]
	Holder string        // whose it is, for people
	Peer   journal.Peer  // its Address and Key are for others that share the database; without an Address the process has it alone
	Finds  string        // how requests find their runs, in words that are the same in all processes that share the database
	// RecordKey tells the key for records from others, as [journal.Chain.KeyID] does; it is the same in all of them, too.
	RecordKey string
	Lost      func(lease int64) // is told once another process has ended a lease of one that shares, before there is the next; it must not wait. nil: nobody is
	Log       func(message string, err error)
}

// Store implements [journal.Shared] over a database, in its schema fsm_proxy. One process has it, or several that share it: each
// has a row, its lease, and each run's row says by which of them it is written, so that a process that has lost it writes
// nothing more. No transaction spans two round trips, and a session keeps nothing: poolers work.
type Store struct {
	cfg    Config
	pool   *pgxpool.Pool
	term   atomic.Pointer[term] // nil: it is opened to read
	ending atomic.Bool
	closed atomic.Bool
	fenced atomic.Uint64

	mu   sync.Mutex // guards what follows, and is held through a commit
	runs map[string]*known

	stop    context.CancelFunc
	stopped chan struct{}
}

var _ journal.Shared = (*Store)(nil)

// Open opens a database for this process alone, or for it and others that share it, and makes the schema where there is none. It
// waits for the end of the lease of a process that is in the way and has not let go of it, once; the error is a [journal.Held]
// where that still has it then.
func Open(ctx context.Context, c Config) (*Store, error) {
	s, err := connect(ctx, c)
	if err != nil {
		return nil, err
	}
	if err = s.migrate(ctx); err == nil {
		err = s.patiently(ctx, s.take)
	}
	if err != nil {
		s.pool.Close()
		return nil, advise(err)
	}
	keeping, stop := context.WithCancel(context.Background())
	s.stop, s.stopped = stop, make(chan struct{})
	go s.keep(keeping)
	return s, nil
}

// OpenReader opens a database to read, whoever writes it.
func OpenReader(ctx context.Context, url string) (*Store, error) {
	s, err := connect(ctx, Config{URL: url})
	if err != nil {
		return nil, err
	}
	if err := s.checkVersion(ctx); err != nil {
		s.pool.Close()
		return nil, err
	}
	return s, nil
}

func connect(ctx context.Context, c Config) (*Store, error) {
	c.Lease = cmp.Or(c.Lease, journal.DefaultLease)
	cfg, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, errors.New("the URL of the database is none: write it like postgres://USER@HOST/DATABASE, with the password in PGPASSWORD or a .pgpass file") // err may tell the password
	}
	if _, there := cfg.ConnConfig.RuntimeParams["application_name"]; !there {
		cfg.ConnConfig.RuntimeParams["application_name"] = "fsm-proxy"
	}
	cfg.ConnConfig.DialFunc = dialer.DialContext
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: c, pool: pool, runs: map[string]*known{}}
	var synchronous string
	err = pool.QueryRow(ctx, "SHOW synchronous_commit").Scan(&synchronous)
	if _, said := cfg.ConnConfig.RuntimeParams["synchronous_commit"]; err == nil && synchronous == "off" && !said {
		err = errors.New("the database does not wait for its disk (synchronous_commit = off): what it confirms may be lost. Set it to on, or add synchronous_commit=off to the URL to have it so")
	}
	if err != nil {
		pool.Close()
		return nil, advise(err)
	}
	return s, nil
}

// Commit implements [journal.Store].
func (s *Store) Commit(ctx context.Context, changes []journal.Change) ([]error, error) {
	if err := journal.CheckAll(changes); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() || s.term.Load() == nil {
		return nil, journal.ErrClosed
	}
	each, err := s.commit(ctx, changes)
	s.connectAnew(err)
	return each, err
}

// Close implements [journal.Store]: others can have the database, or the runs, at once.
func (s *Store) Close() error {
	s.mu.Lock() // of a commit that goes on
	closed := s.closed.Swap(true)
	s.mu.Unlock()
	if closed {
		return nil
	}
	var err error
	if s.stop != nil {
		s.stop()
		<-s.stopped
		err = s.letGo()
	}
	s.pool.Close()
	return err
}
