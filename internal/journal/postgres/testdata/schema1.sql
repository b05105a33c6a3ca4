-- The first schema, as those programs made it that had a database alone, with a run that one of them has.
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
INSERT INTO fsm_proxy.meta VALUES ('schema', 1), ('usable_by', 1);
INSERT INTO fsm_proxy.leases (holder, ends) VALUES ('an old program', now() + interval '1 hour');
INSERT INTO fsm_proxy.runs (id, key_kind, key_hash, issuer, subject, parent, fork, began, owner, base_seq, base_hash, last_seq, last_hash,
	at_seq, at_hash, state, complete, policy, checkpoint)
	SELECT 'r', '', '', '', '', '', 0, now(), no, 0, '', 0, '', 0, '', 'a', false, '', 0 FROM fsm_proxy.leases;
