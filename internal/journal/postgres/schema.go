package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// The version of the schema, and the oldest program, by the version it writes, that can still use a database of it.
const (
	schemaVersion = 2
	usableBy      = 2
)

// What comes from outside is bytea: text here has no NUL.
const schema = `
CREATE SCHEMA IF NOT EXISTS fsm_proxy;
CREATE TABLE fsm_proxy.meta (name text PRIMARY KEY, value bigint NOT NULL);
CREATE SEQUENCE fsm_proxy.lease_numbers;
CREATE TABLE fsm_proxy.leases (
	no bigint PRIMARY KEY DEFAULT nextval('fsm_proxy.lease_numbers'), holder text NOT NULL, ends timestamptz NOT NULL,
	alone boolean NOT NULL, address text NOT NULL DEFAULT '', key bytea NOT NULL DEFAULT ''
);
CREATE SEQUENCE fsm_proxy.policy_numbers;
CREATE TABLE fsm_proxy.policies (digest text PRIMARY KEY, came bigint NOT NULL DEFAULT nextval('fsm_proxy.policy_numbers'));
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

// toSecond brings a database of the first schema, which one process had at a time, to the second. It raises objectInUse, and
// changes nothing, while the lease of that process goes on.
const toSecond = `DO $$
DECLARE whose text;
BEGIN
	LOCK TABLE fsm_proxy.meta, fsm_proxy.leases IN ACCESS EXCLUSIVE MODE;
	IF (SELECT value FROM fsm_proxy.meta WHERE name = 'schema') >= 2 THEN RETURN; END IF;
	SELECT holder INTO whose FROM fsm_proxy.leases WHERE ends > clock_timestamp();
	IF FOUND THEN RAISE EXCEPTION USING ERRCODE = '55006', MESSAGE = whose; END IF;
	DELETE FROM fsm_proxy.leases;
	ALTER TABLE fsm_proxy.leases DROP COLUMN only_one, ADD COLUMN alone boolean NOT NULL,
		ADD COLUMN address text NOT NULL DEFAULT '', ADD COLUMN key bytea NOT NULL DEFAULT '';
	CREATE SEQUENCE fsm_proxy.policy_numbers;
	CREATE TABLE fsm_proxy.policies (digest text PRIMARY KEY, came bigint NOT NULL DEFAULT nextval('fsm_proxy.policy_numbers'));
	UPDATE fsm_proxy.meta SET value = 2;
END $$`

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
	if err := s.checkVersion(ctx); err != nil {
		return err
	}
	var version int
	if err := s.pool.QueryRow(ctx, "SELECT value FROM fsm_proxy.meta WHERE name = 'schema'").Scan(&version); err != nil || version > 1 {
		return err
	}
	return s.patiently(ctx, s.toSecond)
}

func (s *Store) toSecond(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, toSecond, pgx.QueryExecModeSimpleProtocol)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == objectInUse {
		return &journal.Held{By: e.Message, Do: "stop that: it is of an earlier version, of which one process has a database"}
	}
	if err != nil {
		return fmt.Errorf("bringing the schema fsm_proxy to version 2: %w", err)
	}
	return nil
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
