// Package postgres keeps runs in a database of PostgreSQL (https://www.postgresql.org).
package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// Config is how a database is opened.
type Config struct {
	URL    string        // as libpq has it
	Lease  time.Duration // for how long the database is this process's without another word; 0: 5s
	Holder string        // who has it, for a process that finds it taken
	Log    func(message string, err error)
}

// Store implements [journal.Store] over a database, in its schema fsm_proxy. One process has it: a row says which, and
// each run's row by which it is written, so that a process that has lost it writes nothing more.
type Store struct {
	cfg   Config
	pool  *pgxpool.Pool
	lease int64 // the number of this process's, never used again

	mu     sync.Mutex // guards what follows, and is held through a commit
	runs   map[string]*known
	closed bool

	stop    context.CancelFunc
	stopped chan struct{}
}

var _ journal.Store = (*Store)(nil)

// The version of the schema, and the oldest program, by the version it writes, that can still use a database of it.
const (
	schemaVersion = 1
	usableBy      = 1
)

// What comes from outside is bytea: text here has no NUL.
const schema = `
CREATE SCHEMA IF NOT EXISTS fsm_proxy;
CREATE TABLE fsm_proxy.meta (name text PRIMARY KEY, value bigint NOT NULL);
CREATE SEQUENCE fsm_proxy.lease_numbers;
CREATE TABLE fsm_proxy.leases (
	no bigint PRIMARY KEY DEFAULT nextval('fsm_proxy.lease_numbers'), holder text NOT NULL, ends timestamptz NOT NULL,
	only_one boolean NOT NULL DEFAULT true UNIQUE
);
CREATE TABLE fsm_proxy.runs (
	no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE,
	key_kind text NOT NULL, key_hash bytea NOT NULL, issuer bytea NOT NULL, subject bytea NOT NULL,
	parent text NOT NULL, fork bigint NOT NULL, began timestamptz,
	owner bigint NOT NULL, fence bigint NOT NULL DEFAULT 0,
	base_seq bigint NOT NULL, base_hash bytea NOT NULL, last_seq bigint NOT NULL, last_hash bytea NOT NULL,
	at_seq bigint NOT NULL, at_hash bytea NOT NULL, state bytea NOT NULL, complete boolean NOT NULL, policy text NOT NULL,
	checkpoint bigint NOT NULL, due timestamptz, used timestamptz, ended timestamptz
) WITH (fillfactor = 70);
CREATE INDEX runs_key ON fsm_proxy.runs (key_hash, key_kind) WHERE key_kind <> '';
CREATE UNIQUE INDEX runs_live ON fsm_proxy.runs (key_hash, key_kind) WHERE key_kind <> '' AND ended IS NULL;
CREATE INDEX runs_due ON fsm_proxy.runs (due) WHERE due IS NOT NULL AND ended IS NULL;
CREATE INDEX runs_ended ON fsm_proxy.runs (ended, id) WHERE ended IS NOT NULL;
CREATE TABLE fsm_proxy.entries (
	run bigint NOT NULL, seq bigint NOT NULL, hash bytea NOT NULL, bytes bytea NOT NULL, PRIMARY KEY (run, seq)
);
CREATE TABLE fsm_proxy.objects (
	kind text NOT NULL, name bytea NOT NULL, run text NOT NULL, bytes bytea NOT NULL, PRIMARY KEY (kind, name)
);
CREATE INDEX objects_run ON fsm_proxy.objects (run);
`

// Open opens a database for this process alone, and makes the schema where there is none. It waits for the end of the
// lease of a process that has not let go of it, once; the error is a [journal.Held] where that still has it then.
func Open(ctx context.Context, c Config) (*Store, error) {
	s, err := connect(ctx, c)
	if err != nil {
		return nil, err
	}
	if err = s.migrate(ctx); err == nil {
		err = s.take(ctx)
	}
	if err != nil {
		s.pool.Close()
		return nil, advise(err)
	}
	renewing, stop := context.WithCancel(context.Background())
	s.stop, s.stopped = stop, make(chan struct{})
	go s.renew(renewing)
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
	if c.Lease == 0 {
		c.Lease = 5 * time.Second
	}
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
		return nil, err
	}
	return s, nil
}

// migrate makes the schema of a database that has none, and brings an old one to it.
func (s *Store) migrate(ctx context.Context) error {
	there, err := s.hasSchema(ctx)
	if err == nil && !there {
		_, err = s.pool.Exec(ctx, schema+fmt.Sprintf("INSERT INTO fsm_proxy.meta VALUES ('schema', %d), ('usable_by', %d);", schemaVersion, usableBy), pgx.QueryExecModeSimpleProtocol)
		if there, again := s.hasSchema(ctx); err != nil && again == nil && there {
			err = nil // another process has made it just now
		}
	}
	if err != nil {
		return fmt.Errorf("making the schema fsm_proxy: %w", err)
	}
	return s.checkVersion(ctx)
}

func (s *Store) hasSchema(ctx context.Context) (there bool, err error) {
	err = s.pool.QueryRow(ctx, "SELECT to_regclass('fsm_proxy.meta') IS NOT NULL").Scan(&there)
	return there, err
}

func (s *Store) checkVersion(ctx context.Context) error {
	var usable int
	if err := s.pool.QueryRow(ctx, "SELECT value FROM fsm_proxy.meta WHERE name = 'usable_by'").Scan(&usable); err != nil {
		return fmt.Errorf("the database has no runs of fsm-proxy: %w", err)
	}
	if usable > schemaVersion {
		return fmt.Errorf("%w: it needs one that knows schema %d, this one knows %d: start that version, or restore a backup from before the update", journal.ErrTooNew, usable, schemaVersion)
	}
	return nil
}

// Commit implements [journal.Store].
func (s *Store) Commit(ctx context.Context, changes []journal.Change) ([]error, error) {
	if err := journal.CheckAll(changes); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.lease == 0 {
		return nil, journal.ErrClosed
	}
	each, err := s.commit(ctx, changes)
	s.connectAnew(err)
	return each, err
}

// Close implements [journal.Store]: another process can have the database at once.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	var err error
	if s.lease != 0 {
		s.stop()
		<-s.stopped
		err = s.letGo()
	}
	s.pool.Close()
	return err
}
