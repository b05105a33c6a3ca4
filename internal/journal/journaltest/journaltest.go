// Package journaltest holds what is true of every [journal.Store].
package journaltest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
)

// Home is a place for a store.
type Home interface {
	// Open opens the store of the place, which nobody has open, with what was left in it.
	Open(t rapid.TB) journal.Store
	// Empty has the place be one where nothing was.
	Empty(t rapid.TB)
}

// Test tests a kind of store. lasts says whether it keeps what is in it when it is closed.
func Test(t *testing.T, home Home, lasts bool) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, home Home)
	}{
		{"Run", testRun},
		{"Base", testBase},
		{"Conflicts", testConflicts},
		{"OneRunOfAKey", testOneRunOfAKey},
		{"Texts", testTexts},
		{"Objects", testObjects},
		{"ObjectsOf", testObjectsOf},
		{"Swaps", testSwaps},
		{"Pages", testPages},
		{"AtOnce", testAtOnce},
		{"Closed", testClosed},
		{"Mistakes", testMistakes},
	} {
		t.Run(c.name, func(t *testing.T) { home.Empty(t); c.test(t, home) })
	}
	t.Run("Random", func(t *testing.T) { testRandom(t, home, lasts) })
}

func ctx() context.Context { return context.Background() }

var chain = journal.NewChain(nil)

// records returns a run's next records, each with these bytes.
func records(run string, after journal.Point, bytes ...string) (all []journal.Record, last journal.Point) {
	for _, b := range bytes {
		after = chain.Next(run, after, []byte(b))
		all = append(all, journal.Record{Seq: after.Seq, Hash: after.Hash, Bytes: []byte(b)})
	}
	return all, after
}

// began is a run's first change.
func began(id string, k journal.Key, bytes ...string) journal.Change {
	all, last := records(id, journal.Point{}, bytes...)
	return journal.Change{Run: id, Begin: &journal.Row{ID: id, Key: k, Began: at(1)}, Records: all, Head: &journal.Head{At: last, State: "first", Policy: "sha256:1", Used: at(1)}}
}

// at is a time, to the microsecond, as stores return it.
func at(seconds int64) time.Time { return time.UnixMicro(seconds*1_000_000 + 7) }

func key(kind, value string) journal.Key {
	return journal.Key{Kind: kind, Hash: sha256.Sum256([]byte(value))}
}

// must makes changes that all can be made.
func must(t rapid.TB, s journal.Store, changes ...journal.Change) {
	t.Helper()
	each, err := s.Commit(ctx(), changes)
	if err = errors.Join(append(each, err)...); err != nil {
		t.Fatal(err)
	}
}

func equal[T any](t rapid.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n%+v\nwant\n%+v", what, got, want)
	}
}

func row(t rapid.TB, s journal.Store, id string) journal.Row {
	t.Helper()
	r, err := s.Row(ctx(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// read returns the bytes of a run's records behind a number.
func read(t rapid.TB, s journal.Store, id string, after uint64, limit int) string {
	t.Helper()
	all, err := s.Records(ctx(), id, after, limit)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, x := range all {
		out = append(out, fmt.Sprintf("%d:%s", x.Seq, x.Bytes))
	}
	return strings.Join(out, " ")
}

// A run from its beginning to its end, and when it is kept no longer.
func testRun(t *testing.T, home Home) {
	s := open(t, home)
	defer s.Close()
	must(t, s, journal.Change{}) // which waits for those before it alone
	must(t, s, began("r1", key("principal", "ann"), "a", "b"), journal.Change{})
	r := row(t, s, "r1")
	_, two := records("r1", journal.Point{}, "a", "b")
	want := journal.Row{ID: "r1", Key: key("principal", "ann"), Began: at(1), Last: two, Head: journal.Head{At: two, State: "first", Policy: "sha256:1", Used: at(1)}}
	equal(t, "the row", r, want)

	more, four := records("r1", two, "c", "d")
	must(t, s, journal.Change{Run: "r1", Records: more[:1]}, journal.Change{Run: "r1", Records: more[1:], Head: &journal.Head{
		At: four, State: "second", Complete: true, Policy: "sha256:2", Checkpoint: 3, Due: at(99), Used: at(5)}})
	want.Last, want.Head = four, journal.Head{At: four, State: "second", Complete: true, Policy: "sha256:2", Checkpoint: 3, Due: at(99), Used: at(5)}
	equal(t, "the row", row(t, s, "r1"), want)
	equal(t, "all records", read(t, s, "r1", 0, 10), "1:a 2:b 3:c 4:d")
	equal(t, "a page", read(t, s, "r1", 1, 2), "2:b 3:c")
	equal(t, "none", read(t, s, "r1", 4, 2), "")

	begun, five := records("r1", four, "e")
	must(t, s, journal.Change{Run: "r1", Records: begun})
	want.Last = five
	equal(t, "the row of a call that has begun", row(t, s, "r1"), want)

	must(t, s, journal.Change{Run: "r1", Cut: 3})
	want.Base = journal.Point{Seq: 3, Hash: more[0].Hash}
	equal(t, "the row of a run that was cut", row(t, s, "r1"), want)
	equal(t, "what is left", read(t, s, "r1", 0, 10), "4:d 5:e")
	must(t, s, journal.Change{Run: "r1", Cut: 3})
	equal(t, "the row of one that was cut again", row(t, s, "r1"), want)

	// A checkpoint cuts what is before it in the change that it comes with, or does neither.
	next, six := records("r1", five, "f", "g")
	stays := journal.Change{Run: "r1", Records: next[1:], Head: &want.Head, Cut: 5}
	if each, err := s.Commit(ctx(), []journal.Change{stays}); err != nil || !errors.Is(each[0], journal.ErrConflict) {
		t.Error(each, err)
	}
	equal(t, "what is left of a run where records are missing", read(t, s, "r1", 0, 10), "4:d 5:e")
	want.Last, want.Base, want.Head.At, want.Checkpoint = six, five, six, 6
	must(t, s, journal.Change{Run: "r1", Records: next, Head: &want.Head, Cut: 5})
	equal(t, "the row of a run that was cut at a checkpoint", row(t, s, "r1"), want)
	equal(t, "what is left behind it", read(t, s, "r1", 0, 10), "6:f 7:g")

	must(t, s, journal.Change{Run: "r1", Remove: true})
	if _, err := s.Row(ctx(), "r1"); !errors.Is(err, journal.ErrNone) {
		t.Error(err)
	}
	if _, err := s.Records(ctx(), "r1", 0, 1); !errors.Is(err, journal.ErrNone) {
		t.Error(err)
	}
	if _, err := s.Find(ctx(), key("principal", "ann")); !errors.Is(err, journal.ErrNone) {
		t.Error(err)
	}
	must(t, s, began("r1", key("principal", "ann"), "again"))
	equal(t, "a run of the same id", read(t, s, "r1", 0, 10), "1:again")
}

// A run that was kept elsewhere before begins behind what is kept no longer.
func testBase(t *testing.T, home Home) {
	s := open(t, home)
	defer s.Close()
	_, base := records("r1", journal.Point{}, "a", "b")
	rest, last := records("r1", base, "c", "d")
	c := began("r1", journal.Key{})
	c.Begin.Base, c.Records, c.Head.At = base, rest, last
	bare := began("r2", journal.Key{})
	bare.Begin.Base, bare.Head.At = base, base
	must(t, s, c, bare)
	r := row(t, s, "r1")
	equal(t, "where it begins, and ends", []journal.Point{r.Base, r.Last}, []journal.Point{base, last})
	if fault, err := chain.Verify(&r, journal.All(ctx(), s, "r1")); fault != nil || err != nil {
		t.Error(fault, err)
	}
	next, after := records("r1", last, "e")
	must(t, s, journal.Change{Run: "r1", Records: next})
	equal(t, "its records", read(t, s, "r1", 0, 9), "3:c 4:d 5:e")
	equal(t, "its last", row(t, s, "r1").Last, after)
	third, _ := records("r2", base, "x")
	must(t, s, journal.Change{Run: "r2", Records: third})
	equal(t, "those of one without any", read(t, s, "r2", 0, 9), "3:x")
}

// What does not follow is not written, and takes nothing else with it.
func testConflicts(t *testing.T, home Home) {
	s := open(t, home)
	defer s.Close()
	must(t, s, began("r1", journal.Key{}, "a"), began("r2", journal.Key{}))
	_, one := records("r1", journal.Point{}, "a")
	two, _ := records("r1", one, "b")
	three, last := records("r1", journal.Point{Seq: 2}, "c")
	first, _ := records("r2", journal.Point{}, "z")
	each, err := s.Commit(ctx(), []journal.Change{
		{Run: "r1", Records: three, Head: &journal.Head{At: last, State: "never"}, Objects: []journal.Object{{Kind: "k", Name: "n", Bytes: []byte("x")}}},
		{Run: "r2", Records: first},
		{Run: "nobody", Records: first},
		{Run: "r1", Records: two},
		{Run: "r1", Records: two},
		began("r1", journal.Key{}, "new"),
	})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "what became of each", each, []error{journal.ErrConflict, nil, journal.ErrNone, nil, journal.ErrConflict, journal.ErrConflict})
	equal(t, "r1", read(t, s, "r1", 0, 9), "1:a 2:b")
	equal(t, "r2", read(t, s, "r2", 0, 9), "1:z")
	equal(t, "its state", row(t, s, "r1").State, "first")
	if _, err := s.Object(ctx(), "k", "n"); !errors.Is(err, journal.ErrNone) {
		t.Error(err)
	}
}

// A key leads to one run that has not ended; those before it are found by their ids.
func testOneRunOfAKey(t *testing.T, home Home) {
	s := open(t, home)
	defer s.Close()
	k := key("header", "x")
	must(t, s, began("z", k), began("other", key("path", "x")), began("none1", journal.Key{}), began("none2", journal.Key{}))
	if each, err := s.Commit(ctx(), []journal.Change{began("b", k)}); err != nil || !errors.Is(each[0], journal.ErrConflict) {
		t.Fatal(each, err)
	}
	find := func() string {
		r, err := s.Find(ctx(), k)
		if err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	equal(t, "the run", find(), "z")
	must(t, s, journal.Change{Run: "z", Head: &journal.Head{Ended: at(9)}})
	equal(t, "one that has ended", find(), "z")
	must(t, s, began("c", k))
	equal(t, "the next", find(), "c")
	must(t, s, journal.Change{Run: "c", Head: &journal.Head{Ended: at(10)}}, began("a", k))
	equal(t, "the one after", find(), "a")
	equal(t, "an older one", row(t, s, "z").Ended, at(9))
	if _, err := s.Find(ctx(), journal.Key{}); !errors.Is(err, journal.ErrNone) {
		t.Error(err)
	}
}

// What comes from clients and files is kept as it came.
func testTexts(t *testing.T, home Home) {
	s := open(t, home)
	defer s.Close()
	odd := "a'b\"c\\d%_\n\x00e\xff\U0001f600\u202e"
	c := began("r1", journal.Key{}, odd, "", "{}")
	c.Begin.Owner = journal.Principal{Issuer: odd, Subject: odd + "2"}
	c.Begin.Parent, c.Begin.Fork = "r0", 12
	c.Head.State = odd
	must(t, s, c, journal.Change{Objects: []journal.Object{{Kind: "k", Name: odd, Bytes: []byte(odd)}, {Kind: "k", Name: "empty", Bytes: []byte{}}}})
	r := row(t, s, "r1")
	equal(t, "the row", []any{r.Owner, r.Parent, r.Fork, r.State}, []any{c.Begin.Owner, "r0", uint64(12), odd})
	equal(t, "its records", read(t, s, "r1", 0, 9), "1:"+odd+" 2: 3:{}")
	for name, want := range map[string]string{odd: odd, "empty": ""} {
		if got, err := s.Object(ctx(), "k", name); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	page, err := s.List(ctx(), journal.Query{Owner: &c.Begin.Owner})
	if err != nil || len(page) != 1 {
		t.Error(page, err)
	}
	large := strings.Repeat("x", 3<<20)
	next, _ := records("r1", r.Last, large)
	must(t, s, journal.Change{Run: "r1", Records: next})
	equal(t, "a large one", len(read(t, s, "r1", 3, 1)), len(large)+2)
}

func testObjects(t *testing.T, home Home) {
	s := open(t, home)
	defer s.Close()
	must(t, s, began("r1", journal.Key{}), began("r2", journal.Key{}),
		journal.Change{Objects: []journal.Object{{Kind: "policy", Name: "p", Bytes: []byte("0")}}},
		journal.Change{Run: "r1", Objects: []journal.Object{{Kind: "session", Name: "s2", Run: "r1", Bytes: []byte("2")}, {Kind: "session", Name: "s1", Run: "r1", Bytes: []byte("1")}}},
		journal.Change{Run: "r2", Objects: []journal.Object{{Kind: "task", Name: "s1", Run: "r2", Bytes: []byte("t")}}})
	all := func(run string) string {
		objects, err := s.Objects(ctx(), run)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, o := range objects {
			out = append(out, fmt.Sprintf("%s/%s/%s=%s", o.Run, o.Kind, o.Name, o.Bytes))
		}
		return strings.Join(out, " ")
	}
	equal(t, "r1", all("r1"), "r1/session/s1=1 r1/session/s2=2")
	equal(t, "of none", all(""), "/policy/p=0")
	must(t, s, journal.Change{Run: "r1", Objects: []journal.Object{{Kind: "session", Name: "s1", Run: "r1", Bytes: []byte("one")}, {Kind: "session", Name: "s2"}, {Kind: "session", Name: "s3"}}})
	equal(t, "r1", all("r1"), "r1/session/s1=one")
	must(t, s, journal.Change{Run: "r1", Remove: true})
	equal(t, "r1", all("r1"), "")
	equal(t, "r2", all("r2"), "r2/task/s1=t")
}

func testObjectsOf(t *testing.T, home Home) {
	s := open(t, home)
	defer s.Close()
	c := began("r1", journal.Key{})
	want := ""
	for i := range 25 {
		name := fmt.Sprintf("%c%02d\xff", "aB\x01"[i%3], i)
		c.Objects = append(c.Objects, journal.Object{Kind: "k", Name: name, Run: []string{"", "r1"}[i%2], Bytes: []byte{byte(i)}},
			journal.Object{Kind: "j", Name: name, Bytes: []byte("another")}, journal.Object{Kind: "ka", Name: name, Bytes: []byte("another")})
	}
	slices.SortFunc(c.Objects, func(a, b journal.Object) int { return -strings.Compare(a.Name, b.Name) })
	for _, o := range slices.Backward(c.Objects) {
		if o.Kind == "k" {
			want += fmt.Sprintf("%s/%q=%d ", o.Run, o.Name, o.Bytes[0])
		}
	}
	must(t, s, c)
	for _, limit := range []int{1, 7, 25, 100} {
		got, after := "", ""
		for {
			page, err := s.ObjectsOf(ctx(), "k", after, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range page {
				equal(t, "the kind", o.Kind, "k")
				got += fmt.Sprintf("%s/%q=%d ", o.Run, o.Name, o.Bytes[0])
				after = o.Name
			}
			if len(page) < limit {
				break
			}
		}
		equal(t, fmt.Sprintf("pages of %d", limit), got, want)
	}
}

func testPages(t *testing.T, home Home) {
	s := open(t, home)
	defer s.Close()
	for i := range 25 {
		c := began(fmt.Sprintf("%c%02d", 'a'+i%2, i), journal.Key{}, "x")
		c.Begin.Owner.Subject = fmt.Sprint(i % 3)
		c.Head.Used = at(int64(i))
		if i%4 == 0 {
			c.Head.Due = at(int64(100 + i))
		}
		if i%5 == 0 {
			c.Head.Ended = at(int64(200 + i))
		}
		must(t, s, c)
	}
	ids := func(q journal.Query) string {
		page, err := s.List(ctx(), q)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, r := range page {
			out = append(out, r.ID)
		}
		return strings.Join(out, " ")
	}
	var all []string
	for q := (journal.Query{Limit: 7}); ; {
		page := ids(q)
		if page == "" {
			break
		}
		all = append(all, strings.Fields(page)...)
		q.After = all[len(all)-1]
	}
	if len(all) != 25 || !slices.IsSorted(all) {
		t.Errorf("%v", all)
	}
	equal(t, "a prefix", ids(journal.Query{Prefix: "b0", Limit: 3}), "b01 b03 b05")
	equal(t, "a prefix that is a pattern", ids(journal.Query{Prefix: "b%"}), "")
	equal(t, "an owner's", ids(journal.Query{Owner: &journal.Principal{Subject: "2"}, Prefix: "a", Limit: 2}), "a02 a08")
	equal(t, "what is due", ids(journal.Query{DueBy: at(112)}), "a04 a08 a12")
	equal(t, "what nobody uses", ids(journal.Query{UsedBefore: at(4)}), "a02 b01 b03")
	equal(t, "what has ended", ids(journal.Query{EndedBefore: at(215)}), "a00 a10 b05")
	equal(t, "the default page", len(strings.Fields(ids(journal.Query{}))), 25)
	must(t, s, journal.Change{Run: "a10", Remove: true})
	first, err := s.Ended(ctx(), 3)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "what has ended first", strings.Join(first, " "), "a00 b05 b15")
	stock, err := s.Stock(ctx())
	if err != nil || stock.Runs != 24 || stock.Live != 20 || stock.Used <= 0 {
		t.Errorf("the stock is %+v, %v", stock, err)
	}
}

// TestRoom tests that what is removed is room for what is written next, at once.
func TestRoom(t *testing.T, home Home) {
	home.Empty(t)
	s := open(t, home)
	defer s.Close()
	long := strings.Repeat("x", 50_000)
	used := func(ids ...string) int64 {
		var changes []journal.Change
		for _, id := range ids {
			changes = append(changes, began(id, journal.Key{}, long, long))
		}
		must(t, s, changes...)
		stock, err := s.Stock(ctx())
		if err != nil {
			t.Fatal(err)
		}
		return stock.Used
	}
	before := used()
	full := used("a", "b", "c", "d")
	must(t, s, journal.Change{Run: "a", Remove: true}, journal.Change{Run: "b", Remove: true}, journal.Change{Run: "c", Cut: 1})
	if left := used(); before+8*50_000 > full || left > full-4*50_000 || left < before {
		t.Errorf("%d bytes are used, of %d, and %d before", left, full, before)
	}
}

// Many write at once: each run has what was written to it, in its order.
func testAtOnce(t *testing.T, home Home) {
	s := open(t, home)
	defer s.Close()
	const runs, each = 16, 40
	var wait sync.WaitGroup
	for i := range runs {
		wait.Go(func() {
			id := fmt.Sprintf("r%02d", i)
			commit := func(c journal.Change) bool {
				made, err := s.Commit(ctx(), []journal.Change{c})
				if err = errors.Join(append(made, err)...); err != nil {
					t.Error(err)
				}
				return err == nil
			}
			last, good := journal.Point{}, commit(began(id, journal.Key{}))
			for n := 0; good && n < each; n++ {
				var next []journal.Record
				next, last = records(id, last, fmt.Sprint(n))
				good = commit(journal.Change{Run: id, Records: next, Head: &journal.Head{At: last}})
				if _, err := s.Row(ctx(), id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	for i := range runs {
		id := fmt.Sprintf("r%02d", i)
		r := row(t, s, id)
		if fault, err := chain.Verify(&r, journal.All(ctx(), s, id)); fault != nil || err != nil || r.Last.Seq != each || r.At != r.Last {
			t.Errorf("%s: %v, %v, %+v", id, fault, err, r)
		}
	}
}

func testClosed(t *testing.T, home Home) {
	s := open(t, home)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx(), []journal.Change{began("r", journal.Key{})}); !errors.Is(err, journal.ErrClosed) {
		t.Error(err)
	}
	_, row := s.Row(ctx(), "r")
	_, list := s.List(ctx(), journal.Query{})
	_, object := s.Object(ctx(), "a", "b")
	for _, err := range []error{row, list, object} {
		if !errors.Is(err, journal.ErrClosed) {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A change that means nothing is nobody's fault but the caller's, and nothing beside it is made.
func testMistakes(t *testing.T, home Home) {
	s := open(t, home)
	defer s.Close()
	gap, _ := records("r", journal.Point{Seq: 4}, "x")
	first, _ := records("r", journal.Point{}, "x")
	for _, c := range []journal.Change{
		{Records: first},
		{Run: "r", Begin: &journal.Row{ID: "other"}, Head: &journal.Head{}},
		{Run: "r", Begin: &journal.Row{ID: "r"}},
		{Run: "r", Begin: &journal.Row{ID: "r"}, Head: &journal.Head{}, Records: gap},
		{Run: "r", Remove: true, Records: first},
		{Run: "r", Records: append(slices.Clone(first), gap...)},
		{Run: "r", Objects: []journal.Object{{Kind: "k", Run: "other"}}},
		{Objects: []journal.Object{{Name: "n"}}},
		{Run: "r", Objects: []journal.Object{{Kind: "k", Run: "r", Swap: true}}},
	} {
		if _, err := s.Commit(ctx(), []journal.Change{began("good", journal.Key{}), c}); err == nil {
			t.Errorf("%+v is made", c)
		}
	}
	if _, err := s.Row(ctx(), "good"); !errors.Is(err, journal.ErrNone) {
		t.Error(err)
	}
}

// Whatever is done to a store, and however often it is opened again: it is as one that keeps all in maps.
func testRandom(t *testing.T, home Home, lasts bool) {
	rapid.Check(t, func(t *rapid.T) {
		home.Empty(t)
		s, plain := open(t, home), memory.New(0)
		defer func() { s.Close() }()
		ids, keys := []string{"a", "b", "c"}, []journal.Key{{}, key("k", "1"), key("k", "2"), key("l", "1")}
		for range rapid.IntRange(1, 12).Draw(t, "commits") {
			changes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) journal.Change {
				return change(t, plain, ids, keys)
			}), 1, 6).Draw(t, "changes")
			got, err := s.Commit(ctx(), changes)
			if err != nil {
				t.Fatal(err)
			}
			want, err := plain.Commit(ctx(), changes)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "what became of each", got, want)
			if lasts && rapid.IntRange(0, 3).Draw(t, "opened again") == 0 {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, home)
				for _, id := range ids {
					if _, err := s.Take(ctx(), id); err != nil && !errors.Is(err, journal.ErrNone) {
						t.Fatal(err)
					}
				}
			}
			same(t, s, plain, ids, keys)
		}
	})
}

// change draws one that makes sense, or nearly.
func change(t *rapid.T, plain journal.Store, ids []string, keys []journal.Key) journal.Change {
	c := journal.Change{Run: rapid.SampledFrom(ids).Draw(t, "run")}
	r, err := plain.Row(ctx(), c.Run)
	fresh := err != nil
	last := r.Last
	if rapid.IntRange(0, 9).Draw(t, "off") == 0 {
		last.Seq++
	}
	head := func(last journal.Point) *journal.Head {
		seconds := rapid.Int64Range(1, 5)
		h := &journal.Head{At: last, State: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "state"), Complete: rapid.Bool().Draw(t, "complete"), Used: at(seconds.Draw(t, "used"))}
		if rapid.Bool().Draw(t, "due") {
			h.Due = at(seconds.Draw(t, "due at"))
		}
		if rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
			h.Ended = at(seconds.Draw(t, "ended"))
		}
		return h
	}
	if rapid.IntRange(0, 3).Draw(t, "swaps") == 0 {
		some := rapid.SampledFrom([][]byte{nil, []byte("1"), []byte("2")})
		c.Objects = []journal.Object{{Kind: "swap", Name: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "name"), Swap: true, Was: some.Draw(t, "was"), Bytes: some.Draw(t, "is")}}
		return c
	}
	switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
	case fresh && what < 8:
		c = began(c.Run, rapid.SampledFrom(keys).Draw(t, "key"), rapid.SliceOfN(rapid.StringN(0, 3, 6), 0, 3).Draw(t, "bytes")...)
	case what < 6:
		c.Records, last = records(c.Run, last, rapid.SliceOfN(rapid.StringN(0, 3, 6), 1, 5).Draw(t, "bytes")...)
		if rapid.Bool().Draw(t, "moves") {
			c.Head = head(last)
			c.Head.Checkpoint = rapid.Uint64Range(0, 8).Draw(t, "checkpoint")
		}
		if rapid.IntRange(0, 3).Draw(t, "cuts") == 0 {
			c.Cut = rapid.Uint64Range(1, 8).Draw(t, "cut")
		}
	case what == 6:
		c.Cut = rapid.Uint64Range(1, 8).Draw(t, "cut")
	case what == 7:
		c.Remove = true
	default:
		c.Objects = []journal.Object{{Kind: "k", Name: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "name"), Run: c.Run}}
		if rapid.Bool().Draw(t, "put") {
			c.Objects[0].Bytes = []byte(rapid.String().Draw(t, "object"))
		}
	}
	return c
}

func same(t *rapid.T, s, plain journal.Store, ids []string, keys []journal.Key) {
	all, err := s.List(ctx(), journal.Query{})
	if err != nil {
		t.Fatal(err)
	}
	want, _ := plain.List(ctx(), journal.Query{})
	if len(all)+len(want) > 0 {
		equal(t, "the runs", all, want)
	}
	for _, id := range ids {
		got, gotErr := s.Records(ctx(), id, 0, 100)
		want, wantErr := plain.Records(ctx(), id, 0, 100)
		if fmt.Sprint(got, gotErr) != fmt.Sprint(want, wantErr) {
			t.Fatalf("%s: %v %v, want %v %v", id, got, gotErr, want, wantErr)
		}
		objects, gotErr := s.Objects(ctx(), id)
		wantObjects, _ := plain.Objects(ctx(), id)
		if gotErr != nil || fmt.Sprint(objects) != fmt.Sprint(wantObjects) {
			t.Fatalf("%s: %v %v, want %v", id, objects, gotErr, wantObjects)
		}
	}
	objects, err := s.ObjectsOf(ctx(), "swap", "", 10)
	wantObjects, _ := plain.ObjectsOf(ctx(), "swap", "", 10)
	if err != nil || fmt.Sprint(objects) != fmt.Sprint(wantObjects) {
		t.Fatalf("%v %v, want %v", objects, err, wantObjects)
	}
	for _, k := range keys {
		got, gotErr := s.Find(ctx(), k)
		want, wantErr := plain.Find(ctx(), k)
		equal(t, "the run of a key", fmt.Sprint(got, gotErr), fmt.Sprint(want, wantErr))
	}
}
