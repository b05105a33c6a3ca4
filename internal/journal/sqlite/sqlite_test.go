package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/journaltest"
)

// home is a file.
type home struct {
	path string
	tail int64
}

func (h home) Open(t rapid.TB) journal.Store {
	s, err := Open(Config{Path: h.path, Normal: true, Holder: "a test", tail: h.tail})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (h home) Empty(t rapid.TB) {
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		if err := os.Remove(h.path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func TestStore(t *testing.T) {
	journaltest.Test(t, home{path: filepath.Join(t.TempDir(), "odd name?%20#.db")}, true)
}

// Where most entries are placed, and where none is long in the tail.
func TestStoreOfAShortTail(t *testing.T) {
	for _, tail := range []int64{1, 3} {
		t.Run(strconv.FormatInt(tail, 10), func(t *testing.T) {
			journaltest.Test(t, home{filepath.Join(t.TempDir(), "runs.db"), tail}, true)
		})
	}
}

// A file of the first schema is brought to this one, and goes on; it is not read before that.
func TestFileOfTheFirstSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	s := home{path: path}.Open(t).(*Store)
	commit(t, s, began("r1"), began("r2"))
	s.Close()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`DROP TABLE places; DELETE FROM meta WHERE name = 'placed'; UPDATE meta SET value = '1' WHERE name = 'readable_by';
		CREATE UNIQUE INDEX entries_run ON entries (run, seq); PRAGMA user_version = 1`); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if _, err := OpenReader(path); err == nil || !strings.Contains(err.Error(), "brings it to its form") {
		t.Errorf("it is read: %v", err)
	}
	s = home{path: path}.Open(t).(*Store)
	defer s.Close()
	row, err := s.Row(t.Context(), "r1")
	if err != nil || row.Last.Seq != 1 {
		t.Fatalf("%+v, %v", row, err)
	}
	next := journal.NewChain(nil).Next("r1", row.Last, []byte("{}"))
	commit(t, s, journal.Change{Run: "r1", Records: []journal.Record{{Seq: 2, Hash: next.Hash, Bytes: []byte("{}")}}})
	for run, want := range map[string]int{"r1": 2, "r2": 1} {
		if all, err := s.Records(t.Context(), run, 0, 10); err != nil || len(all) != want {
			t.Errorf("%s has %d records, %v", run, len(all), err)
		}
	}
	r, err := OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
}

// A place that somebody else has taken is taken once: what was to go there goes behind it.
func TestPlaceThatIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	s := home{path: path}.Open(t).(*Store)
	defer s.Close()
	commit(t, s, began("r1"))
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("INSERT INTO entries (run, seq, hash, bytes) SELECT run, 7, hash, bytes FROM entries"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), []journal.Change{began("r2")}); err == nil {
		t.Error("the place was not taken")
	}
	commit(t, s, began("r2"))
}

// What is written goes to no place that something had that is gone: it would be neither placed nor in the tail.
func TestPlacesAreNotUsedAgain(t *testing.T) {
	h := home{path: filepath.Join(t.TempDir(), "runs.db")}
	s := h.Open(t).(*Store)
	commit(t, s, began("r1"), began("r2"))
	commit(t, s, journal.Change{Run: "r2", Remove: true})
	s.Close()
	s = h.Open(t).(*Store)
	defer s.Close()
	commit(t, s, began("r3"))
	for _, run := range []string{"r1", "r3"} {
		if all, err := s.Records(t.Context(), run, 0, 10); err != nil || len(all) != 1 {
			t.Errorf("%s has %d records, %v", run, len(all), err)
		}
	}
}

func TestRoom(t *testing.T) {
	journaltest.TestRoom(t, home{path: filepath.Join(t.TempDir(), "runs.db")})
}

func began(id string) journal.Change {
	p := journal.NewChain(nil).Next(id, journal.Point{}, []byte("{}"))
	return journal.Change{Run: id, Begin: &journal.Row{ID: id}, Head: &journal.Head{At: p}, Records: []journal.Record{{Seq: p.Seq, Hash: p.Hash, Bytes: []byte("{}")}}}
}

func commit(t *testing.T, s *Store, changes ...journal.Change) {
	t.Helper()
	each, err := s.Commit(context.Background(), changes)
	if err = errors.Join(append(each, err)...); err != nil {
		t.Fatal(err)
	}
}

// One process has a file, and who comes second is told who; others read it meanwhile, and it is free once it is closed.
func TestOneProcessWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	first, err := Open(Config{Path: path, Holder: "process 17 of host-1"})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, first, began("r1"))
	var held *journal.Held
	if _, err := Open(Config{Path: path, Holder: "process 18"}); !errors.As(err, &held) || held.By != "process 17 of host-1" {
		t.Fatalf("%v", err)
	}
	reader, err := OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	commit(t, first, began("r2"))
	if rows, err := reader.List(context.Background(), journal.Query{}); err != nil || len(rows) != 2 {
		t.Errorf("%v, %v", rows, err)
	}
	if _, err := reader.Commit(context.Background(), []journal.Change{began("r3")}); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("a reader writes: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Open(Config{Path: path, Holder: "process 18"})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, second, began("r3"))
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

// A file that is something else, or that a newer program has written for newer ones alone, is left as it is.
func TestFilesThatAreNotReadHere(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "runs.db")
	s, err := Open(Config{Path: path, Holder: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, began("r1"))
	s.Close()
	change := func(path, text string) {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	both := func(path string) (open, read error) {
		s, open := Open(Config{Path: path, Holder: "a test"})
		if open == nil {
			s.Close()
		}
		r, read := OpenReader(path)
		if read == nil {
			r.Close()
		}
		return open, read
	}
	change(path, "PRAGMA user_version = 3; ALTER TABLE runs ADD COLUMN later TEXT NOT NULL DEFAULT ''")
	if open, read := both(path); open != nil || read != nil {
		t.Errorf("a newer schema that can be read: %v, %v", open, read)
	}
	change(path, "UPDATE meta SET value = '3' WHERE name = 'readable_by'")
	if open, read := both(path); !errors.Is(open, journal.ErrTooNew) || !errors.Is(read, journal.ErrTooNew) {
		t.Errorf("one that cannot: %v, %v", open, read)
	}
	other := filepath.Join(folder, "other.db")
	change(other, "CREATE TABLE mail (id INTEGER)")
	if open, read := both(other); open == nil || read == nil || !strings.Contains(open.Error(), "something else") {
		t.Errorf("a database of something else: %v, %v", open, read)
	}
	text := filepath.Join(folder, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if open, read := both(text); open == nil || read == nil {
		t.Errorf("a text: %v, %v", open, read)
	}
	if _, err := OpenReader(filepath.Join(folder, "none.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

// A commit is on the disk when it is told, unless it was asked not to be.
func TestSynchronous(t *testing.T) {
	for normal, want := range map[bool]string{false: "wal 2 1 1", true: "wal 1 1 1"} {
		s, err := Open(Config{Path: filepath.Join(t.TempDir(), "runs.db"), Normal: normal, Holder: "a test"})
		if err != nil {
			t.Fatal(err)
		}
		var is []string
		for _, pragma := range []string{"journal_mode", "synchronous", "fullfsync", "checkpoint_fullfsync"} { // the last two: on macOS fsync does not wait for the disk
			var value string
			if err := s.write.conn.QueryRowContext(context.Background(), "PRAGMA "+pragma).Scan(&value); err != nil {
				t.Fatal(err)
			}
			is = append(is, value)
		}
		if got := strings.Join(is, " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		s.Close()
	}
}

// A disk that is full refuses what comes, whole, and takes it again when there is room.
func TestFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	s := home{path: path}.Open(t).(*Store)
	defer s.Close()
	commit(t, s, began("r1"))
	limit := func(pages int) {
		if _, err := s.write.conn.ExecContext(context.Background(), "PRAGMA max_page_count = "+strconv.Itoa(pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // what it has
	big := began("r2")
	big.Records[0].Bytes = bytes.Repeat([]byte("x"), 1<<20)
	if _, err := s.Commit(context.Background(), []journal.Change{began("r3"), big}); err == nil || !strings.Contains(err.Error(), "full") {
		t.Fatalf("%v", err)
	}
	if rows, err := s.List(context.Background(), journal.Query{}); err != nil || len(rows) != 1 {
		t.Errorf("%v, %v", rows, err)
	}
	limit(1 << 20)
	commit(t, s, began("r3"), big)
}

func BenchmarkStep(b *testing.B) {
	s, err := Open(Config{Path: filepath.Join(b.TempDir(), "runs.db"), Holder: "a benchmark"})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	journaltest.Bench(b, s)
}

// What stands in the way is told with what to do.
func TestErrorsAdvise(t *testing.T) {
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	s, err := Open(Config{Path: in("runs.db"), Holder: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, began("r1"))
	s.Close()
	whole, err := os.ReadFile(in("runs.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(in("cannot.db-wal"), 0o700); err != nil { // as where the folder cannot be written
		t.Fatal(err)
	}
	torn := bytes.Clone(whole)
	copy(torn[100:], bytes.Repeat([]byte{0xff}, 300)) // the first page's tables
	for name, text := range map[string][]byte{"empty.db": nil, "cannot.db": whole, "torn.db": torn, "p.yaml": []byte(strings.Repeat("version: 1\n", 100))} {
		if err := os.WriteFile(in(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name       string
		open, read string // "": it can be
	}{
		{".", "it is a folder: write sqlite:" + folder + "/", "it is a folder: write sqlite:" + folder + "/"},
		{"empty.db", "", "nothing is in the file yet"},
		{"cannot.db", "choose a folder that this process can write", "choose a folder that this process can write"},
		{"torn.db", "restore a backup", "restore a backup"},
		{"p.yaml", "name another file by --store", "name another file by --store"},
	} {
		r, err := OpenReader(in(x.name))
		if err == nil {
			r.Close()
		}
		if (err == nil) != (x.read == "") || err != nil && !strings.Contains(err.Error(), x.read) {
			t.Errorf("reading %s: %v", x.name, err)
		}
		w, err := Open(Config{Path: in(x.name), Holder: "a test"})
		if err == nil {
			w.Close()
		}
		if (err == nil) != (x.open == "") || err != nil && (!strings.Contains(err.Error(), x.open) || strings.Contains(err.Error(), "hard link")) {
			t.Errorf("opening %s: %v", x.name, err)
		}
	}
	for _, err := range []error{syscall.EROFS, syscall.EACCES} {
		if told := advise(&os.PathError{Op: "open", Path: "runs.db", Err: err}); !errors.Is(told, err) || !strings.Contains(told.Error(), "choose a folder that this process can write") {
			t.Errorf("%v", told)
		}
	}
}
