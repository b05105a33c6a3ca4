// Package sqlite keeps runs in one file of SQLite (https://sqlite.org), which one process writes and others may read.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	_ "modernc.org/sqlite" // the driver

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// Config is how a file is opened.
type Config struct {
	Path   string
	Normal bool   // commits do not wait for the disk: power loss may lose the last ones, a crash of the process none
	Holder string // who has the file, for a process that finds it taken
	tail   int64  // see maxTail, which is meant by 0
}

// Store implements [journal.Store] over a file.
type Store struct {
	path string
	lock *flock.Flock // nil: it is only read
	read *sql.DB
	here []file // that are written

	mu     sync.Mutex // guards what follows
	write  *writer    // nil: it is only read, or closed
	looked time.Time  // when its files were there
}

var _ journal.Store = (*Store)(nil)

// fileID is the application_id of the files, "fsmp".
const fileID = 0x66736d70

// The version of the schema, and the oldest program, by the version it writes, that can still read a file of it.
const (
	schemaVersion = 2
	readableBy    = 2
)

const schema = `
CREATE TABLE runs (
	no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
	key_kind TEXT NOT NULL, key_hash BLOB NOT NULL, issuer TEXT NOT NULL, subject TEXT NOT NULL,
	parent TEXT NOT NULL, fork INTEGER NOT NULL, began INTEGER NOT NULL,
	base_seq INTEGER NOT NULL, base_hash BLOB NOT NULL,
	at_seq INTEGER NOT NULL, at_hash BLOB NOT NULL, state TEXT NOT NULL, complete INTEGER NOT NULL, policy TEXT NOT NULL,
	checkpoint INTEGER NOT NULL, due INTEGER NOT NULL, used INTEGER NOT NULL, ended INTEGER NOT NULL
) STRICT;
CREATE INDEX runs_key ON runs (key_hash, key_kind) WHERE key_kind <> '';
CREATE UNIQUE INDEX runs_live ON runs (key_hash, key_kind) WHERE key_kind <> '' AND ended = 0;
CREATE INDEX runs_due ON runs (due) WHERE due <> 0 AND ended = 0;
CREATE INDEX runs_ended ON runs (ended, id) WHERE ended <> 0;
CREATE TABLE entries (
	place INTEGER PRIMARY KEY, run INTEGER NOT NULL, seq INTEGER NOT NULL, hash BLOB NOT NULL, bytes BLOB NOT NULL
) STRICT;
CREATE TABLE objects (
	kind TEXT NOT NULL, name TEXT NOT NULL, run TEXT NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX objects_run ON objects (run);
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
` + places

// places say where the entries of a run are, but for the tail: those written last, behind the place placed. An index of
// entries would have each commit write a page of it for each run that has one in it.
const places = `
CREATE TABLE places (run INTEGER NOT NULL, seq INTEGER NOT NULL, place INTEGER NOT NULL, PRIMARY KEY (run, seq)) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('placed', '0');
`

// placed is the place behind which the tail begins.
const placed = "(SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'placed')"

// maxTail is about how long the tail gets: who reads goes through it.
const maxTail = 1024

// lookEvery is how often a commit looks whether its files are still there: what is written to one that was taken away does
// not count. A look takes a third of the time of a commit.
const lookEvery = 100 * time.Millisecond

// Open opens a file for this process alone, and makes it where there is none. The error is a [journal.Held] where
// another process has it.
func Open(c Config) (*Store, error) {
	s, err := open(c)
	if err != nil {
		return nil, advise(err)
	}
	return s, nil
}

func open(c Config) (*Store, error) {
	path, err := resolve(c.Path)
	if err == nil {
		err = errors.Join(noFolder(path), oneName(path))
	}
	if err != nil {
		return nil, err
	}
	c.Path = path
	if kind, err := networkFS(filepath.Dir(c.Path)); err != nil {
		return nil, err
	} else if kind != "" {
		return nil, fmt.Errorf("%s is on a network file system (%s), where SQLite may lose what it has written: choose a local disk, or PostgreSQL", c.Path, kind)
	}
	lock, err := take(c.Path+".lock", c.Holder)
	if err != nil {
		return nil, err
	}
	s := &Store{path: c.Path, lock: lock}
	if err := s.open(&c); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) open(c *Config) (err error) {
	if s.write, err = openWriter(c); err != nil {
		return err
	}
	if s.here, err = opened(c.Path); err != nil {
		return err
	}
	s.read, err = openReader(c.Path)
	return err
}

// OpenReader opens a file to read, whoever writes it.
func OpenReader(path string) (*Store, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	} else if err := noFolder(path); err != nil {
		return nil, err
	}
	s := &Store{path: path}
	var err error
	if s.read, err = openReader(path); err != nil {
		return nil, err
	}
	if version, err := checkVersion(context.Background(), s.read); err != nil {
		return nil, errors.Join(advise(err), s.Close())
	} else if version < schemaVersion {
		return nil, errors.Join(errors.New("an older version has written the store: a proxy of this version that is started with it as its --store brings it to its form"), s.Close())
	}
	return s, nil
}

func openReader(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", source(path, "mode=ro", "_pragma=query_only(1)"))
	if err == nil {
		db.SetMaxOpenConns(4)
	}
	return db, err
}

// source is the data source name of a file.
func source(path string, parameters ...string) string {
	path = filepath.ToSlash(path)
	if runtime.GOOS == "windows" && filepath.IsAbs(path) {
		path = "/" + path
	}
	u := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: strings.Join(append(parameters, "_pragma=busy_timeout(5000)"), "&")}
	if !strings.HasPrefix(path, "/") {
		u.Opaque, u.Path = (&url.URL{Path: path}).EscapedPath(), ""
	}
	return u.String()
}

// querier is a database or a connection of it.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// checkVersion refuses a file that this program cannot read, and returns the version of its schema.
func checkVersion(ctx context.Context, q querier) (version int, err error) {
	var id, tables, readable int
	if err := q.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil {
		return 0, err
	}
	if err := q.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return 0, err
	}
	switch {
	case tables == 0:
		return 0, errors.New("nothing is in the file yet: a proxy that is started with it as its --store makes a store of it")
	case id != fileID:
		return 0, errors.New("it is a database of something else: name another file by --store")
	}
	var text string
	if err := q.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'readable_by'").Scan(&text); errors.Is(err, sql.ErrNoRows) {
		return 0, errors.New("the file does not say who can read it: it is damaged: restore a backup, without the -wal and -shm files of another one beside it")
	} else if err != nil {
		return 0, err
	}
	if readable, _ = strconv.Atoi(text); readable > schemaVersion {
		return 0, fmt.Errorf("%w: it needs one that reads schema %d, this one reads %d: start that version, or restore a backup from before the update", journal.ErrTooNew, readable, schemaVersion)
	}
	err = q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version)
	return version, err
}

// Path is the path of the file.
func (s *Store) Path() string { return s.path }

// Commit implements [journal.Store].
func (s *Store) Commit(_ context.Context, changes []journal.Change) ([]error, error) {
	if err := journal.CheckAll(changes); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.write == nil {
		return nil, journal.ErrClosed
	}
	each, err := s.write.commit(changes)
	if now := time.Now(); err == nil && now.Sub(s.looked) >= lookEvery {
		if err := there(s.here); err != nil {
			return nil, err
		}
		s.looked = now
	}
	return each, err
}

// Close implements [journal.Store].
func (s *Store) Close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read != nil {
		err = s.read.Close()
		s.read = nil
	}
	if s.write != nil {
		err = errors.Join(err, s.write.close())
		s.write = nil
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Unlock())
		s.lock = nil
	}
	return err
}
