//go:build long

package postgres_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/postgres"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	server "github.com/fsm-proxy/fsm-proxy/internal/mcptest/postgres"
)

// sharing is how a process opens a database that others share.
func sharing(url, name string, lease time.Duration) postgres.Config {
	return postgres.Config{URL: url, Holder: name, Lease: lease, Peer: journal.Peer{Address: name + ":1", Key: sha256.Sum256([]byte(name))}}
}

// share opens a database that others share, by a lease that is not renewed in the test's time.
func share(t *testing.T, url, name string) *postgres.Store {
	t.Helper()
	return shareAs(t, sharing(url, name, time.Hour))
}

func shareAs(t *testing.T, c postgres.Config) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the server may be gone
	return s
}

// past has a lease be past its end.
func past(t *testing.T, url string, s *postgres.Store) {
	t.Helper()
	execute(t, url, fmt.Sprintf("UPDATE fsm_proxy.leases SET ends = now() WHERE no = %d", s.Lease()))
}

func must(t *testing.T, s *postgres.Store, changes ...journal.Change) {
	t.Helper()
	if err := commit(s, changes...); err != nil {
		t.Fatal(err)
	}
}

// elsewhere has a run not be taken, but be another's; the zero Peer is nobody.
func elsewhere(t *testing.T, s *postgres.Store, id string, by journal.Peer) {
	t.Helper()
	row, err := s.Take(t.Context(), id)
	if e, ok := errors.AsType[*journal.Elsewhere](err); !ok || *e != (journal.Elsewhere{Run: id, By: by}) {
		t.Fatalf("%+v, %v, want that %+v has it", row, err, by)
	}
}

// refused has changes be refused of which another process, or a later tenure, has the run.
func refused(t *testing.T, s *postgres.Store, changes ...journal.Change) {
	t.Helper()
	for i, c := range changes {
		before := s.Fenced()
		if err := commit(s, c); !errors.Is(err, journal.ErrConflict) {
			t.Errorf("change %d: %v", i, err)
		}
		if n := s.Fenced() - before; n != 1 {
			t.Errorf("change %d: %d were counted", i, n)
		}
	}
}

// late is all that may be written of a run.
func (r *run) late() []journal.Change {
	x := *r
	next := x.next("late")
	return []journal.Change{next,
		{Run: r.id, Tenure: r.by, Records: next.Records, Head: &journal.Head{State: "late"}},
		{Run: r.id, Tenure: r.by, Records: slices.Concat(next.Records, x.next("later").Records)},
		{Run: r.id, Tenure: r.by, Head: &journal.Head{State: "late"}},
		{Run: r.id, Tenure: r.by, Cut: 1},
		{Run: r.id, Tenure: r.by, Objects: []journal.Object{{Kind: "k", Name: "late", Run: r.id, Bytes: []byte("late")}}},
		{Run: r.id, Tenure: r.by, Remove: true},
	}
}

// TestShared tests what several processes may do to one database.
func TestShared(t *testing.T) {
	pg := server.Start(t)
	for name, test := range map[string]func(t *testing.T, url string){
		"a run is taken only past the end of its owner's lease":         takenPastTheEnd,
		"a lease that is renewed meanwhile is not ended":                renewedMeanwhile,
		"a lease that was ended is not renewed":                         endedIsNotRenewed,
		"nothing is written under an earlier tenure":                    earlierTenure,
		"whoever takes a run meanwhile, nothing is written of it after": meanwhile,
		"nothing is written under what another process has":             anothersTenure,
		"of two that begin a run of a key one does":                     twoBegin,
		"a run that was released is anybody's":                          released,
		"a process that ends takes nothing":                             ending,
		"a run that is imported is the process's":                       imported,
		"a run that has ended is taken, whoever has it":                 endedRun,
		"who has the database alone shares it with nobody":              aloneOrShared,
		"who finds one that lets go just then waits for it":             letsGoJustThen,
		"who shares the database agrees on keys":                        agreed,
		"trust ends before the lease does, where the database hangs":    trustEndsFirst,
		"a lease that another one has to wait for does not end sooner":  renewedInAnyOrder,
		"who takes a lease ends those past their end":                   takingEnds,
		"who closes it lets go at once":                                 closed,
		"of those who take a run at once one has it":                    takenAtOnce,
		"a database of the first schema is brought to the second":       firstSchema,
		"an object of no run needs the process's own lease":             objectsOfNone,
		"an object is swapped by one of those who would at once":        swappedAtOnce,
		"policies stand in the order in which they came into force":     orderOfPolicies,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, pg.URL(strings.ReplaceAll(name, " ", "_")))
		})
	}
}

func takenPastTheEnd(t *testing.T, url string) {
	a, b := share(t, url, "a"), share(t, url, "b")
	r := &run{id: "r"}
	must(t, a, r.begin(a), r.next("1"))
	peer := journal.Peer{Lease: a.Lease(), Holder: "a", Address: "a:1", Key: sha256.Sum256([]byte("a"))}
	elsewhere(t, b, "r", peer)
	must(t, a, r.next("2"))
	old := *r
	past(t, url, a)
	if row := r.take(t, b); row.Last != old.last || row.Tenure != (journal.Tenure{Lease: b.Lease(), Fence: 2}) {
		t.Fatalf("%+v", row)
	}
	refused(t, a, old.late()...)
	if a.Fenced() == 0 || b.Fenced() != 0 {
		t.Error(a.Fenced(), b.Fenced())
	}
	if _, err := a.Take(t.Context(), "r"); err == nil {
		t.Error("it is taken by a lease that was ended")
	}
	must(t, b, r.next("3"))
	for _, s := range []*postgres.Store{a, b} {
		if row, err := s.Row(t.Context(), "r"); err != nil || row.Tenure != r.by || row.Last != r.last {
			t.Errorf("%+v, %v", row, err)
		}
	}
}

// renewedMeanwhile has a process find a lease past its end, which is renewed before it can end it.
func renewedMeanwhile(t *testing.T, url string) {
	a, b := share(t, url, "a"), share(t, url, "b")
	r := &run{id: "r"}
	must(t, a, r.begin(a))
	past(t, url, a)
	c, watch := connect(t, url), connect(t, url)
	sql(t, c, "BEGIN")
	sql(t, c, fmt.Sprintf("UPDATE fsm_proxy.leases SET ends = now() + interval '1 hour' WHERE no = %d", a.Lease()))
	over := make(chan struct{})
	go func() {
		defer close(over)
		elsewhere(t, b, "r", journal.Peer{Lease: a.Lease(), Holder: "a", Address: "a:1", Key: sha256.Sum256([]byte("a"))})
	}()
	awaitLock(t, watch, over)
	sql(t, c, "COMMIT")
	<-over
	must(t, a, r.next("1"))
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // the server may be gone
	return c
}

func sql(t *testing.T, c *pgx.Conn, text string) {
	t.Helper()
	if _, err := c.Exec(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

// awaitLock waits for a session that waits for a lock, or until that is over for which one would. The connection is in no
// transaction: in one, what others do stays as it was seen first.
func awaitLock(t *testing.T, watch *pgx.Conn, over <-chan struct{}) {
	t.Helper()
	mcptest.Await(t, "a session that waits", func() (waits bool) {
		select {
		case <-over:
			return true
		default:
		}
		if err := watch.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
}

func endedIsNotRenewed(t *testing.T, url string) {
	c := sharing(url, "a", 800*time.Millisecond)
	lost := make(chan int64, 9)
	var s *postgres.Store
	opened := make(chan struct{})
	c.Lost = func(lease int64) {
		<-opened
		if s.Lease() != lease || s.Trusts(lease) {
			t.Error("another number is there, or the old one is trusted")
		}
		lost <- lease
	}
	s = shareAs(t, c)
	close(opened)
	old := s.Lease()
	r := &run{id: "r"}
	must(t, s, r.begin(s))
	execute(t, url, "DELETE FROM fsm_proxy.leases") // as one does who takes the run past its end
	if lease := <-lost; lease != old {
		t.Fatalf("lease %d was lost, of %d", lease, old)
	}
	mcptest.Await(t, "another lease", func() bool { return s.Lease() != old && s.Trusts(s.Lease()) })
	if s.Trusts(old) || len(lost) > 0 {
		t.Error("the old lease is trusted, or lost once more")
	}
	must(t, s, r.next("nobody has taken it")) // what had begun may end
	before := *r
	if r.take(t, s); r.by != (journal.Tenure{Lease: s.Lease(), Fence: 2}) || r.last != before.last {
		t.Errorf("%+v", r)
	}
	refused(t, s, before.late()...)
	must(t, s, r.next("2"))
	x := run{id: "x"}
	begin := x.begin(s)
	begin.Tenure.Lease = old
	if err := commit(s, begin); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("a run begins by a lease that was ended: %v", err)
	}
}

func earlierTenure(t *testing.T, url string) {
	s := open(t, url, "alone", time.Hour)
	r := &run{id: "r"}
	must(t, s, r.begin(s), r.next("1"))
	first := *r
	r.take(t, s)
	second := *r
	refused(t, s, first.late()...)
	late := first.next("late")
	each, err := s.Commit(t.Context(), []journal.Change{late, r.next("2"), late, r.next("3")})
	if want := []error{journal.ErrConflict, nil, journal.ErrConflict, nil}; err != nil || !slices.Equal(each, want) {
		t.Errorf("%v, %v", each, err)
	}
	r.take(t, s)
	refused(t, s, second.late()...)
	if row, err := s.Row(t.Context(), "r"); err != nil || row.Last != r.last || row.Tenure.Fence != 3 || row.State != "a" {
		t.Errorf("%+v, %v", row, err)
	}
	if _, err := s.Object(t.Context(), "k", "late"); !errors.Is(err, journal.ErrNone) {
		t.Error(err)
	}
	refused(t, s, (&run{id: "r", last: r.last}).late()...) // under none
}

// meanwhile has each change wait in the database for somebody who has the run's row, or find it as that has left it.
func meanwhile(t *testing.T, url string) {
	s, c, watch := share(t, url, "a"), connect(t, url), connect(t, url)
	for n, set := range []string{"fence = fence + 1", "owner = 0", "owner = 99", "fence = 1"} {
		for i := range (&run{}).late() {
			r := &run{id: fmt.Sprintf("r%d-%d", n, i)}
			must(t, s, r.begin(s), r.next("1"))
			take := fmt.Sprintf("UPDATE fsm_proxy.runs SET %s WHERE id = '%s'", set, r.id)
			late := func() {
				t.Helper()
				if x := r.late()[i]; set != "fence = 1" {
					refused(t, s, x)
				} else if err := commit(s, x); err != nil { // it stays as it is
					t.Errorf("change %d: %v", i, err)
				}
			}
			if i%2 == n%2 {
				sql(t, c, take)
				late()
				untouched(t, s, r, set)
				continue
			}
			sql(t, c, "BEGIN")
			sql(t, c, take)
			over := make(chan struct{})
			go func() { defer close(over); late() }()
			awaitLock(t, watch, over)
			sql(t, c, "COMMIT")
			<-over
			untouched(t, s, r, set)
		}
	}
}

// untouched has a run be as it was, unless nobody has taken it.
func untouched(t *testing.T, s *postgres.Store, r *run, set string) {
	t.Helper()
	if set == "fence = 1" {
		return
	}
	row, err := s.Row(t.Context(), r.id)
	records, _ := s.Records(t.Context(), r.id, 0, 9)
	objects, _ := s.Objects(t.Context(), r.id)
	if err != nil || row.Last != r.last || row.State != "a" || row.Base.Seq != 0 || len(records) != 1 || len(objects) != 0 {
		t.Errorf("%+v, %v, %d records, %d objects", row, err, len(records), len(objects))
	}
}

func anothersTenure(t *testing.T, url string) {
	a, b := share(t, url, "a"), share(t, url, "b")
	r := &run{id: "r"}
	must(t, a, r.begin(a), r.next("1"))
	refused(t, b, r.late()...)
	if err := b.Release(t.Context(), map[string]journal.Tenure{"r": r.by}); err != nil {
		t.Error(err)
	}
	must(t, a, r.next("2"))
	x := run{id: "x"}
	if err := commit(b, x.begin(a)); !errors.Is(err, journal.ErrConflict) {
		t.Error(err)
	}
}

func twoBegin(t *testing.T, url string) {
	all := []*postgres.Store{share(t, url, "a"), share(t, url, "b")}
	key := journal.Key{Kind: "k", Hash: sha256.Sum256([]byte("x"))}
	each := make([]error, len(all))
	var wait sync.WaitGroup
	for i, s := range all {
		wait.Go(func() {
			r := &run{id: fmt.Sprint("r", i)}
			c := r.begin(s)
			c.Begin.Key = key
			each[i] = commit(s, c)
		})
	}
	wait.Wait()
	i := slices.Index(each, nil)
	if i < 0 || !errors.Is(each[1-i], journal.ErrConflict) {
		t.Fatal(each)
	}
	row, err := all[1-i].Find(t.Context(), key)
	if err != nil || row.ID != fmt.Sprint("r", i) || row.Tenure != (journal.Tenure{Lease: all[i].Lease(), Fence: 1}) {
		t.Errorf("%+v, %v", row, err)
	}
}

func released(t *testing.T, url string) {
	a, b := share(t, url, "a"), share(t, url, "b")
	r := &run{id: "r"}
	must(t, a, r.begin(a), r.next("1"))
	first := *r
	r.take(t, a)
	release := func(by journal.Tenure) {
		t.Helper()
		if err := a.Release(t.Context(), map[string]journal.Tenure{"r": by, "none": by}); err != nil {
			t.Fatal(err)
		}
	}
	release(first.by)
	release(journal.Tenure{})
	must(t, a, r.next("2"))
	release(r.by)
	refused(t, a, r.late()...)
	if row, err := b.Row(t.Context(), "r"); err != nil || row.Tenure != (journal.Tenure{Fence: 2}) {
		t.Fatalf("%+v, %v", row, err)
	}
	refused(t, b, (&run{id: "r", last: r.last, by: journal.Tenure{Fence: 2}}).late()...) // nobody has it
	old := *r
	if r.take(t, b); r.by != (journal.Tenure{Lease: b.Lease(), Fence: 3}) || r.last != old.last {
		t.Fatalf("%+v", r)
	}
	release(old.by)
	must(t, b, r.next("3"))
}

func ending(t *testing.T, url string) {
	a, b := share(t, url, "a"), share(t, url, "b")
	own, theirs, done := &run{id: "own"}, &run{id: "theirs"}, &run{id: "done"}
	must(t, a, own.begin(a))
	must(t, b, theirs.begin(b), done.begin(b), journal.Change{Run: "done", Tenure: done.by, Head: &journal.Head{Ended: time.Now()}})
	a.End()
	must(t, a, own.next("1")) // what is under way there comes to its end
	elsewhere(t, a, "theirs", journal.Peer{Lease: b.Lease(), Holder: "b", Address: "b:1", Key: sha256.Sum256([]byte("b"))})
	past(t, url, b)
	elsewhere(t, a, "theirs", journal.Peer{})
	done.take(t, a)
	if err := a.Release(t.Context(), map[string]journal.Tenure{"own": own.by, "theirs": theirs.by}); err != nil {
		t.Fatal(err)
	}
	elsewhere(t, a, "own", journal.Peer{})
	c := share(t, url, "c")
	own.take(t, c)
	own.take(t, c)
	c.End()
	elsewhere(t, c, "own", journal.Peer{}) // it has left memory there, and whoever looks for it gives it away
	own.take(t, share(t, url, "d"))
}

func imported(t *testing.T, url string) {
	s := share(t, url, "a")
	r := &run{id: "r"}
	must(t, s, r.begin(s), r.next("1"), journal.Change{Objects: []journal.Object{{Kind: "policy", Name: "p", Bytes: []byte("p")}}})
	var text bytes.Buffer
	export := journal.Exporter{From: s, To: &text, Needs: func([]byte) []journal.Object { return nil }}
	if err := errors.Join(export.Objects(t.Context()), export.Run(t.Context(), "r")); err != nil {
		t.Fatal(err)
	}
	must(t, s, journal.Change{Run: "r", Tenure: r.by, Remove: true})
	if done, err := journal.Import(t.Context(), s, &text); err != nil || len(done.Runs) != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	must(t, s, r.next("2"))
}

func endedRun(t *testing.T, url string) {
	a, b := share(t, url, "a"), share(t, url, "b")
	r := &run{id: "r"}
	must(t, a, r.begin(a), r.next("1"), journal.Change{Run: "r", Tenure: r.by, Head: &journal.Head{Ended: time.Now()}})
	old := *r
	r.take(t, b)
	refused(t, a, old.late()...)
	must(t, b, journal.Change{Run: "r", Tenure: r.by, Remove: true})
	if _, err := a.Take(t.Context(), "r"); !errors.Is(err, journal.ErrNone) {
		t.Error(err)
	}
	must(t, a, r.begin(a)) // whatever was known of it
	must(t, a, (&run{id: "r", by: r.by}).next("again"))
}

// held has a database not be opened, since another process has it.
func held(t *testing.T, c postgres.Config, by, says string) {
	t.Helper()
	s, err := postgres.Open(t.Context(), c)
	if err == nil {
		_ = s.Close() // it is a mistake that it is open
	}
	if h, ok := errors.AsType[*journal.Held](err); !ok || h.By != by || !strings.Contains(h.Do, says) || strings.Contains(h.Do, "sqlite") {
		t.Errorf("%v", err)
	}
}

func letsGoJustThen(t *testing.T, url string) {
	open(t, url, "one", time.Hour).Close()
	var all sync.WaitGroup
	for i := range 4 {
		c := postgres.Config{URL: url, Holder: fmt.Sprint("process ", i), Lease: 100 * time.Millisecond}
		all.Go(func() {
			for range 150 {
				s, err := postgres.Open(t.Context(), c)
				if _, is := errors.AsType[*journal.Held](err); err != nil && !is {
					t.Error(err)
				} else if err == nil {
					_ = s.Close()
				}
			}
		})
	}
	all.Wait()
}

func aloneOrShared(t *testing.T, url string) {
	const wait = 100 * time.Millisecond
	alone := postgres.Config{URL: url, Holder: "alone", Lease: wait, Finds: "otherwise", RecordKey: "another"}
	a := share(t, url, "a")
	b := share(t, url, "b")
	held(t, alone, "a", "it has --peer-listen: give")
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	one := open(t, url, "one", time.Hour)
	held(t, alone, "one", "alone: stop it")
	other := sharing(url, "other", wait)
	other.Finds, other.RecordKey = "otherwise", "another"
	held(t, other, "one", "alone: stop it")
	past(t, url, one)
	share(t, url, "a")
}

// agreed tests what processes have to agree on: what the first of them has said, until none goes on.
func agreed(t *testing.T, url string) {
	const wait, long = 100 * time.Millisecond, 10 * time.Second
	with := func(name, finds, key string, lease time.Duration) postgres.Config {
		c := sharing(url, name, lease)
		c.Finds, c.RecordKey = finds, key
		return c
	}
	const session, principal, k1, k2, none = "[session session]", "[principal principal]", "key 1", "key 2", ""
	a := shareAs(t, with("a", session, k1, long))
	held(t, with("b", principal, k1, wait), "a", "--run-key")
	for _, key := range []string{k2, none} {
		held(t, with("b", session, key, wait), "a", "--record-key")
	}
	b := shareAs(t, with("b", session, k1, long))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	held(t, with("a", session, k2, wait), "b", "--record-key")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	c := shareAs(t, with("c", principal, none, long))
	held(t, with("a", principal, k1, wait), "c", "--record-key")
	held(t, with("a", session, none, wait), "c", "--run-key")

	// of an earlier version, that does not say all: the first that does is who agrees with it
	execute(t, url, "DELETE FROM fsm_proxy.meta WHERE name = 'record_key'")
	held(t, with("a", session, k2, wait), "c", "--run-key")
	d := shareAs(t, with("d", principal, k1, long))
	held(t, with("a", principal, k2, wait), "c", "--record-key")
	if err := errors.Join(c.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	shareAs(t, with("a", session, k2, long))
}

func trustEndsFirst(t *testing.T, url string) {
	const lease = 2 * time.Second
	s := shareAs(t, sharing(url, "a", lease))
	no := s.Lease()
	if !s.Trusts(no) || s.Trusts(0) || s.Trusts(no+1) {
		t.Fatal("it trusts what it has not, or not what it has")
	}
	c := connect(t, url)
	sql(t, c, "BEGIN; LOCK TABLE fsm_proxy.leases IN SHARE MODE") // no renewal goes on
	mcptest.Await(t, "an end of trust", func() bool { return !s.Trusts(no) })
	var goesOn bool
	if err := c.QueryRow(t.Context(), "SELECT ends > clock_timestamp() FROM fsm_proxy.leases").Scan(&goesOn); err != nil || !goesOn {
		t.Errorf("the lease has ended first: %v", err)
	}
	sql(t, c, "COMMIT")
	mcptest.Await(t, "trust again", func() bool { return s.Trusts(no) })
}

func renewedInAnyOrder(t *testing.T, url string) {
	s, c := shareAs(t, sharing(url, "a", 400*time.Millisecond)), connect(t, url)
	no := s.Lease()
	version := func() (x string) {
		if err := c.QueryRow(t.Context(), "SELECT xmin::text FROM fsm_proxy.leases").Scan(&x); err != nil {
			t.Fatal(err)
		}
		return x
	}
	sql(t, c, "UPDATE fsm_proxy.leases SET ends = now() + interval '1 hour'") // as a renewal that was asked for later
	first := version()
	mcptest.Await(t, "a renewal", func() bool { return version() != first })
	var left float64
	if err := c.QueryRow(t.Context(), "SELECT extract(epoch FROM ends - now())::float8 FROM fsm_proxy.leases").Scan(&left); err != nil || left < 3500 || s.Lease() != no {
		t.Errorf("it ends in %v s: %v", left, err)
	}
}

func takingEnds(t *testing.T, url string) {
	a, b := share(t, url, "a"), share(t, url, "b")
	past(t, url, a)
	c := share(t, url, "c")
	peers, err := c.Peers(t.Context())
	want := []journal.Peer{
		{Lease: b.Lease(), Holder: "b", Address: "b:1", Key: sha256.Sum256([]byte("b"))},
		{Lease: c.Lease(), Holder: "c", Address: "c:1", Key: sha256.Sum256([]byte("c"))},
	}
	if err != nil || !slices.Equal(peers, want) {
		t.Errorf("%+v, %v", peers, err)
	}
	x := run{id: "x"}
	if err := commit(a, x.begin(a)); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("a run begins by a lease that was ended: %v", err)
	}
}

func closed(t *testing.T, url string) {
	a, b := share(t, url, "a"), share(t, url, "b")
	r := &run{id: "r"}
	must(t, a, r.begin(a))
	no := a.Lease()
	if err := a.Close(); err != nil || a.Trusts(no) {
		t.Fatal(err)
	}
	r.take(t, b)
	if peers, err := b.Peers(t.Context()); err != nil || len(peers) != 1 {
		t.Errorf("%+v, %v", peers, err)
	}
	if _, err := a.Take(t.Context(), "r"); !errors.Is(err, journal.ErrClosed) {
		t.Error(err)
	}
}

func takenAtOnce(t *testing.T, url string) {
	first := share(t, url, "first")
	var all []*postgres.Store
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, share(t, url, name))
	}
	var runs []*run
	for i := range 10 {
		r := &run{id: fmt.Sprint("r", i)}
		must(t, first, r.begin(first))
		runs = append(runs, r)
	}
	past(t, url, first)
	for _, r := range runs {
		rows, each := make([]journal.Row, len(all)), make([]error, len(all))
		var wait sync.WaitGroup
		for i, s := range all {
			wait.Go(func() { rows[i], each[i] = s.Take(t.Context(), r.id) })
		}
		wait.Wait()
		has := slices.Index(each, nil)
		if has < 0 || rows[has].Tenure != (journal.Tenure{Lease: all[has].Lease(), Fence: 2}) {
			t.Fatalf("%+v, %v", rows, each)
		}
		for i, err := range each {
			if e, ok := errors.AsType[*journal.Elsewhere](err); i != has && (!ok || e.By.Lease != all[has].Lease()) {
				t.Errorf("%+v, %v", rows[i], err)
			}
		}
	}
}

func firstSchema(t *testing.T, url string) {
	text, err := os.ReadFile("testdata/schema1.sql")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, url, string(text))
	if _, err := postgres.Open(t.Context(), sharing(url, "a", 100*time.Millisecond)); err == nil || !strings.Contains(err.Error(), "in use by an old program") {
		t.Fatal(err)
	}
	reader, err := postgres.OpenReader(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if row, err := reader.Row(t.Context(), "r"); err != nil || row.Tenure != (journal.Tenure{Lease: 1}) {
		t.Errorf("%+v, %v", row, err)
	}
	execute(t, url, "UPDATE fsm_proxy.leases SET ends = now()")
	var all [3]*postgres.Store
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() {
			var err error
			if all[i], err = postgres.Open(t.Context(), sharing(url, fmt.Sprint("p", i), time.Hour)); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if t.Failed() {
		return
	}
	for _, s := range all {
		defer s.Close()
	}
	r := &run{id: "r"}
	if r.take(t, all[0]); r.by != (journal.Tenure{Lease: all[0].Lease(), Fence: 1}) {
		t.Errorf("%+v", r.by)
	}
	must(t, all[0], r.next("1"))
	inOrder(t, all[0])
	enforced(t, all[0], "p", "")
	inOrder(t, all[0], "p")
	c := connect(t, url)
	for _, old := range []string{ // what the old program sends when it goes on
		"UPDATE fsm_proxy.leases SET ends = now() + interval '5 s' WHERE no = 1",
		"UPDATE fsm_proxy.runs SET last_seq = 1 WHERE id = 'r' AND owner = 1 AND last_seq = 0",
	} {
		if done, err := c.Exec(t.Context(), old); err != nil || done.RowsAffected() != 0 {
			t.Errorf("%s: %v, %v", old, done, err)
		}
	}
	if _, err := c.Exec(t.Context(), "INSERT INTO fsm_proxy.leases AS l (holder, ends) VALUES ('an old program', now()) ON CONFLICT (only_one) DO NOTHING"); err == nil {
		t.Error("an old program takes the database")
	}
}

func objectsOfNone(t *testing.T, url string) {
	a, b := share(t, url, "a"), share(t, url, "b")
	put := func(text string) journal.Change {
		return journal.Change{Objects: []journal.Object{{Kind: "policy", Name: "p", Bytes: []byte(text)}}}
	}
	must(t, a, put("a"))
	must(t, b, put("b"))
	past(t, url, a)
	must(t, a, put("a")) // nobody has ended it
	share(t, url, "c")
	refused(t, a, put("late"), journal.Change{Objects: []journal.Object{{Kind: "policy", Name: "p"}}})
	if text, err := b.Object(t.Context(), "policy", "p"); string(text) != "a" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// swappedAtOnce has processes count by one object, each with runs of its own: none of them is counted over.
func swappedAtOnce(t *testing.T, url string) {
	const each = 25
	var wait sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		s := share(t, url, name)
		r := &run{id: name}
		must(t, s, r.begin(s))
		wait.Go(func() {
			for n := 0; n < each; {
				was, err := s.Object(t.Context(), "k", "n")
				if err != nil && !errors.Is(err, journal.ErrNone) {
					t.Error(err)
					return
				}
				c := r.next("counts")
				c.Objects = []journal.Object{{Kind: "k", Name: "n", Swap: true, Was: was, Bytes: append(slices.Clone(was), name...)}}
				switch err := commit(s, c); {
				case err == nil:
					n++
				case journal.AsStale(err) == nil:
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	s := share(t, url, "d")
	text, err := s.Object(t.Context(), "k", "n")
	for _, name := range []string{"a", "b", "c"} {
		if n := strings.Count(string(text), name); n != each {
			t.Errorf("%s has counted %d times in %q, %v", name, n, text, err)
		}
	}

	// Two swap two objects each, in either order, and neither waits for the other without end.
	for i := range 20 {
		var both sync.WaitGroup
		for _, x := range []struct{ first, second string }{{"x", "y"}, {"y", "x"}} {
			by := share(t, url, fmt.Sprint(x.first, i))
			both.Go(func() {
				change := func(name string) journal.Change {
					return journal.Change{Objects: []journal.Object{{Kind: "two", Name: name, Swap: true, Bytes: []byte("1"), Was: nil}}}
				}
				if each, err := by.Commit(t.Context(), []journal.Change{change(fmt.Sprint(x.first, i)), change(fmt.Sprint(x.second, i))}); err != nil {
					t.Error(each, err)
				}
			})
		}
		both.Wait()
	}

	// Nothing is swapped by a lease that was ended.
	a := share(t, url, "late")
	past(t, url, a)
	share(t, url, "e")
	if err := commit(a, journal.Change{Objects: []journal.Object{{Kind: "k", Name: "n", Swap: true, Was: text}}}); journal.AsStale(err) == nil {
		t.Error(err)
	}
}

func enforced(t *testing.T, s *postgres.Store, policy, before string) {
	t.Helper()
	if err := s.Enforced(t.Context(), policy, before); err != nil {
		t.Error(err)
	}
}

// inOrder has policies have come into force one after the other, and one never that is none of them.
func inOrder(t *testing.T, s *postgres.Store, want ...string) {
	t.Helper()
	want = append([]string{"none"}, want...)
	for i, p := range want {
		for j, other := range want {
			if later, err := s.Succeeds(t.Context(), p, other); later != (i > j) || err != nil {
				t.Errorf("of %v %s comes after %s: %v, %v", want[1:], p, other, later, err)
			}
		}
	}
}

func orderOfPolicies(t *testing.T, url string) {
	a := share(t, url, "a")
	enforced(t, a, "1", "")
	b := share(t, url, "b")
	enforced(t, b, "2", "")
	inOrder(t, a, "1", "2")
	c := share(t, url, "c") // starts among others
	enforced(t, c, "1", "")
	inOrder(t, b, "1", "2")
	enforced(t, a, "2", "1") // as b did
	enforced(t, a, "3", "2")
	enforced(t, c, "2", "1") // later than a did
	inOrder(t, c, "1", "2", "3")
	enforced(t, b, "3", "2")
	enforced(t, c, "3", "2")
	inOrder(t, c, "1", "2", "3")
	var wait sync.WaitGroup
	for _, s := range []*postgres.Store{a, b, c} { // all go back
		wait.Go(func() { enforced(t, s, "2", "3") })
	}
	wait.Wait()
	inOrder(t, c, "1", "3", "2")
	enforced(t, c, "2", "2") // the same file, read again
	inOrder(t, c, "1", "3", "2")
	for _, s := range []*postgres.Store{a, b, c} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if s.Enforced(t.Context(), "4", "") == nil {
			t.Error("a policy comes into force of a process that has ended")
		}
	}
	d := share(t, url, "d") // starts alone
	enforced(t, d, "1", "")
	inOrder(t, d, "3", "2", "1")
}
