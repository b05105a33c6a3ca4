//go:build long

package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/journaltest"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/postgres"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	server "github.com/fsm-proxy/fsm-proxy/internal/mcptest/postgres"
)

// home is a database.
type home struct{ url string }

func (h home) Open(t rapid.TB) journal.Store {
	s, err := postgres.Open(context.Background(), postgres.Config{URL: h.url, Holder: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (h home) Empty(t rapid.TB) {
	c, err := pgx.Connect(context.Background(), h.url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(context.Background(), `DO $$ BEGIN IF to_regclass('fsm_proxy.runs') IS NOT NULL THEN TRUNCATE fsm_proxy.runs, fsm_proxy.entries, fsm_proxy.objects; UPDATE fsm_proxy.leases SET ends = now(); END IF; END $$`); err != nil {
		t.Fatal(err)
	}
}

func TestStore(t *testing.T) {
	journaltest.Test(t, home{server.Start(t).URL("runs")}, true)
}

func open(t *testing.T, url, holder string, lease time.Duration) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), postgres.Config{URL: url, Holder: holder, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the server may be gone
	return s
}

func execute(t *testing.T, url, text string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err == nil {
		defer c.Close(context.Background())
		_, err = c.Exec(t.Context(), text)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run writes a run's changes.
type run struct {
	id   string
	last journal.Point
	by   journal.Tenure
}

// begin begins a run of a store's lease.
func (r *run) begin(s *postgres.Store) journal.Change {
	r.by = journal.Tenure{Lease: s.Lease(), Fence: 1}
	return journal.Change{Run: r.id, Tenure: journal.Tenure{Lease: s.Lease()}, Begin: &journal.Row{ID: r.id}, Head: &journal.Head{State: "a"}}
}

// take has a store take the run.
func (r *run) take(t *testing.T, s *postgres.Store) journal.Row {
	t.Helper()
	row, err := s.Take(t.Context(), r.id)
	if err != nil {
		t.Fatal(err)
	}
	r.by, r.last = row.Tenure, row.Last
	return row
}

func (r *run) next(bytes string) journal.Change {
	r.last = journal.NewChain(nil).Next(r.id, r.last, []byte(bytes))
	return journal.Change{Run: r.id, Tenure: r.by, Records: []journal.Record{{Seq: r.last.Seq, Hash: r.last.Hash, Bytes: []byte(bytes)}}}
}

func commit(s journal.Store, changes ...journal.Change) error {
	each, err := s.Commit(context.Background(), changes)
	return errors.Join(append(each, err)...)
}

// One process has a database. Who comes second waits for the end of its lease, and is told who has it.
func TestOneProcessWrites(t *testing.T) {
	url := server.Start(t).URL("runs")
	first := open(t, url, "process 17 of host-1", 5*time.Second)
	var held *journal.Held
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: url, Holder: "process 18", Lease: 200 * time.Millisecond}); !errors.As(err, &held) || held.By != "process 17 of host-1" {
		t.Fatalf("%v", err)
	}
	r := &run{id: "r"}
	if err := commit(first, r.begin(first)); err != nil {
		t.Fatal(err)
	}
	reader, err := postgres.OpenReader(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if rows, err := reader.List(t.Context(), journal.Query{}); err != nil || len(rows) != 1 {
		t.Errorf("%v, %v", rows, err)
	}
	if err := commit(reader, r.next("x")); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("a reader writes: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, url, "process 18", 5*time.Second)
}

// A process that was paused for longer than its lease writes nothing of a run that another one has taken since, and no
// object.
func TestPausedProcessWritesNothing(t *testing.T) {
	url := server.Start(t).URL("runs")
	paused := open(t, url, "paused", time.Hour) // it renews nothing
	a, b := &run{id: "a"}, &run{id: "b"}
	if err := commit(paused, a.begin(paused), a.next("1"), b.begin(paused)); err != nil {
		t.Fatal(err)
	}
	execute(t, url, "UPDATE fsm_proxy.leases SET ends = now()")
	next := open(t, url, "next", time.Hour)
	stranger := *a
	if err := commit(next, stranger.next("never")); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("a run that was not taken is written: %v", err)
	}
	late := *a
	if row := a.take(t, next); row.Last != late.last || row.Tenure != (journal.Tenure{Lease: next.Lease(), Fence: 2}) {
		t.Fatalf("%+v", row)
	}
	if err := commit(paused, late.next("late")); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("a late record is written: %v", err)
	}
	if err := commit(paused, journal.Change{Run: "a", Tenure: late.by, Head: &journal.Head{State: "late"}}); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("a late state is written: %v", err)
	}
	if err := commit(paused, journal.Change{Run: "a", Tenure: late.by, Remove: true}); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("it is removed late: %v", err)
	}
	if err := commit(next, journal.Change{Objects: []journal.Object{{Kind: "policy", Name: "p", Bytes: []byte("p")}}}); err != nil {
		t.Fatal(err)
	}
	for _, bytes := range [][]byte{[]byte("late"), nil} {
		if err := commit(paused, journal.Change{Objects: []journal.Object{{Kind: "policy", Name: "p", Bytes: bytes}}}); !errors.Is(err, journal.ErrConflict) {
			t.Errorf("a policy is written late, as %q: %v", bytes, err)
		}
	}
	if text, err := next.Object(t.Context(), "policy", "p"); string(text) != "p" || err != nil {
		t.Errorf("the policy is %q, %v", text, err)
	}
	if row, err := paused.Take(t.Context(), "a"); err == nil || errors.Is(err, journal.ErrNone) {
		t.Errorf("it is taken back: %+v, %v", row, err)
	}
	if err := commit(next, a.next("2"), a.next("3")); err != nil {
		t.Error(err)
	}
	row, err := next.Row(t.Context(), "a")
	if fault, bad := journal.NewChain(nil).Verify(&row, journal.All(t.Context(), next, "a")); err != nil || bad != nil || fault != nil || row.Last.Seq != 3 {
		t.Errorf("%+v %v %v %v", row, err, bad, fault)
	}
}

// A database that crashes, and one that is gone for a while: what was confirmed is there, what was not is written once
// it is back, and the process still has it.
func TestDatabaseThatIsGone(t *testing.T) {
	pg := server.Start(t)
	url := pg.URL("runs")
	s := open(t, url, "first", 200*time.Millisecond)
	down := make(chan error, 100)
	w := journal.NewCommitter(journal.CommitterConfig{Store: s, Health: func(err error) { down <- err }})
	r := &run{id: "r"}
	for range 2 {
		if r.last.Seq == 0 {
			if _, err := w.Submit(r.begin(s), journal.Must); err != nil {
				t.Fatal(err)
			}
		}
		before, err := w.Submit(r.next("before"), journal.Must)
		if err != nil {
			t.Fatal(err)
		}
		if <-before.Done(); before.Err() != nil {
			t.Fatal(before.Err())
		}
		pg.Down(true)
		ticket, err := w.Submit(r.next("meanwhile"), journal.Must)
		if err != nil {
			t.Fatal(err)
		}
		if <-down == nil {
			t.Fatal("the store is well while it is down")
		}
		if _, err := w.Submit(journal.Change{Run: "r", Head: &journal.Head{}}, journal.Now); err == nil {
			t.Error("something new is taken")
		}
		pg.Up()
		if <-ticket.Done(); ticket.Err() != nil {
			t.Fatal(ticket.Err())
		}
		if err := <-down; err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	row, err := s.Row(t.Context(), "r")
	if fault, bad := journal.NewChain(nil).Verify(&row, journal.All(t.Context(), s, "r")); err != nil || bad != nil || fault != nil || row.Last != r.last {
		t.Errorf("%+v %v %v %v", row, err, bad, fault)
	}
}

// A process that shares a database whose commits are made, but confirmed too late, leaves no lease that goes on: neither the one
// it has nor, once that was ended, others that it takes. Another one has its runs then. It has a lease again once commits are
// confirmed.
func TestDatabaseThatConfirmsTooLate(t *testing.T) {
	for name, ended := range map[string]bool{"its lease stays": false, "its lease is ended": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := server.Start(t).URL("runs")
			c := sharing(url, "a", 800*time.Millisecond)
			failed := make(chan error, 1000)
			c.Log = func(_ string, err error) {
				if err != nil {
					failed <- err
				}
			}
			a := shareAs(t, c)
			r := &run{id: "r"}
			must(t, a, r.begin(a))
			sure := url + "&synchronous_commit=local"
			execute(t, sure, "ALTER SYSTEM SET synchronous_standby_names = 'none'") // and so all others wait until they give up
			execute(t, sure, "SELECT pg_reload_conf()")
			if ended {
				execute(t, sure, "DELETE FROM fsm_proxy.leases")
			}
			watch := connect(t, sure)
			goOn := func() (n int) {
				if err := watch.QueryRow(t.Context(), "SELECT count(*) FROM fsm_proxy.leases WHERE ends > now()").Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			for none, tries := 0, 0; none < 5; tries++ { // in a row: what it tries first is done some time after it has given that up
				if none++; goOn() > 0 {
					none = 0
				}
				if <-failed; tries > 40 {
					t.Fatal("a lease goes on by which nobody acts")
				}
			}
			r.take(t, share(t, sure, "b"))
			execute(t, sure, "ALTER SYSTEM RESET synchronous_standby_names")
			execute(t, sure, "SELECT pg_reload_conf()")
			mcptest.Await(t, "a lease that it acts by", func() bool { return a.Trusts(a.Lease()) })
			if n := goOn(); n != 2 {
				t.Errorf("%d leases go on", n)
			}
		})
	}
}

// Databases that cannot keep what is promised, or are something else, are refused, and what is said tells no password.
func TestDatabasesThatAreRefused(t *testing.T) {
	pg := server.Start(t)
	url := pg.URL("runs")
	execute(t, url, "ALTER DATABASE runs SET synchronous_commit = off")
	refused := func(url, want string) {
		t.Helper()
		s, err := postgres.Open(t.Context(), postgres.Config{URL: url, Holder: "a test", Lease: 200 * time.Millisecond})
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refused(url, "synchronous_commit")
	s, err := postgres.Open(t.Context(), postgres.Config{URL: url + "&synchronous_commit=off", Holder: "a test"})
	if err != nil {
		t.Fatalf("it is said to be so: %v", err)
	}
	s.Close()
	execute(t, url, "ALTER DATABASE runs RESET synchronous_commit; UPDATE fsm_proxy.meta SET value = 3 WHERE name = 'usable_by'")
	refused(url, journal.ErrTooNew.Error())
	execute(t, url, "UPDATE fsm_proxy.meta SET value = 2; UPDATE fsm_proxy.meta SET value = 3 WHERE name = 'schema'; ALTER TABLE fsm_proxy.runs ADD COLUMN later text")
	open(t, url, "an older program", time.Second)
	refused("postgres://fsm:secret@127.0.0.1:1/x", "127.0.0.1")
	refused("postgres://fsm:secret@%zz/x", "postgres://USER@HOST/DATABASE")
}

func BenchmarkStep(b *testing.B) {
	pg := server.Start(b)
	pg.Down(false)
	pg.Up("fsync=on")
	s, err := postgres.Open(b.Context(), postgres.Config{URL: pg.URL("runs"), Holder: "a benchmark"})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	journaltest.Bench(b, s)
}

// Behind a pooler that carries no prepared statements the error says what to do.
func TestPoolerWithoutPreparedStatements(t *testing.T) {
	database := server.Start(t)
	url := database.URL("runs")
	open(t, url, "first", time.Hour)
	pooled := database.PgBouncer(false)(url)
	for range 2 { // over one connection of the pooler
		reader, err := postgres.OpenReader(t.Context(), pooled)
		if err != nil {
			if !strings.Contains(err.Error(), "add default_query_exec_mode=exec to the URL") {
				t.Error(err)
			}
			return
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("there is no such error")
}
