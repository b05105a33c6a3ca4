// Package stores opens the store that a URL names.
package stores

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/postgres"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/sqlite"
)

// Config says which store is opened, and for whom.
type Config struct {
	URL       string            // see [Check]
	Run       string            // the run that a folder of SQLite files has a file for
	Lease     time.Duration     // for how long this process's lease of a database goes on without another word; 0: 5s
	Holder    string            // who has it, for a process that finds it taken
	Peer      journal.Peer      // its Address and Key are for others that share a database; without an Address this process has the store alone
	Finds     string            // see [postgres.Config]
	RecordKey string            // likewise
	Lost      func(lease int64) // likewise
	Existing  bool              // no file of SQLite is made where there is none
	Log       func(message string, err error)
}

// Memory is the URL of no store: nothing is kept.
const Memory = "memory"

// Known says what a URL may be.
const Known = "memory, sqlite:PATH, sqlite:FOLDER/, postgres://HOST/DATABASE"

// Check says what is wrong with the URL of a store, nil for nothing. It does not repeat the URL, which may have a password.
func Check(text string) error {
	_, err := parse(text, "run")
	return err
}

// IsSQLite reports whether the URL is of a file.
func IsSQLite(text string) bool {
	s, err := parse(text, "run")
	return err == nil && !s.memory && !s.postgres
}

// IsFolder reports whether the URL is of a folder, with a file for each run name.
func IsFolder(text string) bool {
	s, err := parse(text, "run")
	return err == nil && s.folder != ""
}

// Files returns the URLs of the stores in the folder that a URL names, in the order of their names; it is an error if there
// are none. Of any other URL it returns that one.
func Files(text string) (urls []string, err error) {
	s, err := parse(text, "run")
	if err != nil || s.folder == "" {
		return []string{text}, err
	}
	files, err := os.ReadDir(s.folder)
	if err != nil {
		return nil, fmt.Errorf("looking for stores: %w: is it the folder that the proxy was started with?", err)
	}
	for _, f := range files {
		path := filepath.Join(s.folder, f.Name())
		if info, err := os.Stat(path); err == nil && filepath.Ext(path) == extension && info.Mode().IsRegular() && info.Size() > 0 {
			urls = append(urls, "sqlite:"+path)
		}
	}
	if len(urls) == 0 {
		return nil, fmt.Errorf("the folder %s has no store: a proxy that runs with --store sqlite:FOLDER/ makes one there, NAME%s for its --run NAME", s.folder, extension)
	}
	return urls, nil
}

// store is what a URL says.
type store struct {
	memory, postgres bool
	folder           string // of files of SQLite, "" where the URL names a file
	path             string // of a file of SQLite
	normal           bool
}

func parse(text, run string) (s store, err error) {
	scheme, rest, _ := strings.Cut(text, ":")
	switch {
	case text == "" || text == Memory:
		return store{memory: true}, nil
	case scheme == "postgres" || scheme == "postgresql":
		return store{postgres: true}, nil
	case scheme != "sqlite":
		return s, errors.New("it is no store: it is one of " + Known)
	}
	path, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return s, errors.New("what is behind the ? cannot be read: it is sync=normal, or sync=full")
	}
	for name, given := range values {
		if name != "sync" || len(given) != 1 || given[0] != "normal" && given[0] != "full" {
			return s, errors.New("behind the ? it says what there is not: it is sync=normal, or sync=full")
		}
		s.normal = given[0] == "normal"
	}
	if path == "" {
		return s, errors.New("it names no file: write sqlite:PATH, or sqlite:FOLDER/")
	}
	if strings.HasSuffix(path, "/") || strings.HasSuffix(path, string(filepath.Separator)) {
		s.folder = path
		path = filepath.Join(path, fileName(run)+extension)
	}
	s.path = path
	return s, nil
}

// extension is how the names of files end that a folder has for runs.
const extension = ".db"

// fileName is a run's name as a file may be called. No two runs have one file: what a file name cannot have is escaped,
// and so is the % that stands for that.
func fileName(run string) string {
	name := url.PathEscape(run)
	if strings.HasPrefix(name, ".") { // the file would be hidden, or be the folder
		name = "%2E" + name[1:]
	}
	return name
}

// Open opens a store for this process alone, or a database for others with it; nil for memory. The error is a [journal.Held] where another process has it.
func Open(ctx context.Context, c Config) (journal.Store, error) {
	s, err := parse(c.URL, c.Run)
	switch {
	case err != nil:
		return nil, fmt.Errorf("opening the store: %w", err)
	case s.memory:
		return nil, nil
	case s.postgres:
		db, err := postgres.Open(ctx, postgres.Config{URL: c.URL, Lease: c.Lease, Holder: c.Holder, Peer: c.Peer, Finds: c.Finds, RecordKey: c.RecordKey, Lost: c.Lost, Log: c.Log})
		if err != nil {
			return nil, fmt.Errorf("opening the store in PostgreSQL: %w", err)
		}
		return db, nil
	}
	if c.Existing {
		if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
			return nil, missing(s.path)
		}
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return nil, fmt.Errorf("making the store's folder: %w", err)
	}
	file, err := sqlite.Open(sqlite.Config{Path: s.path, Normal: s.normal, Holder: c.Holder})
	if err != nil {
		return nil, fmt.Errorf("opening the store %s: %w", s.path, err)
	}
	return file, nil
}

// OpenReader opens a store to read, whoever writes it.
func OpenReader(ctx context.Context, c Config) (journal.Store, error) {
	s, err := parse(c.URL, c.Run)
	switch {
	case err != nil:
		return nil, fmt.Errorf("opening the store: %w", err)
	case s.memory:
		return nil, errors.New("what is in memory is read where it is: ask the running proxy by its --admin address")
	case s.postgres:
		db, err := postgres.OpenReader(ctx, c.URL)
		if err != nil {
			return nil, fmt.Errorf("opening the store in PostgreSQL: %w", err)
		}
		return db, nil
	}
	file, err := sqlite.OpenReader(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(s.path)
	} else if err != nil {
		return nil, fmt.Errorf("opening the store %s: %w", s.path, err)
	}
	return file, nil
}

// missing is the error of a file that is not there.
func missing(path string) error {
	return fmt.Errorf("there is no store %s: give --store as the proxy has it; a proxy makes it when it starts", path)
}

// The least and the most that a key for records is long, in bytes.
const minKey, maxKey = 32, 4096

// ReadKey reads the key by which records are hashed from a file; nil for no path.
func ReadKey(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the key for records (--record-key): %w", err)
	}
	if key = bytes.TrimSpace(key); len(key) < minKey || len(key) > maxKey {
		return nil, fmt.Errorf("the key for records in %s has %d bytes: it has %d to %d; make one by 'openssl rand -hex 32'", path, len(key), minKey, maxKey)
	}
	return key, nil
}
