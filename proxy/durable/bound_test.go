package durable_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/sqlite"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// bounded is a store with bounds, over a journal that counts how often it is looked through.
type bounded struct {
	*testing.T
	*durable.Store
	journal *looked
	policy  *policy.Policy
	now     time.Time
}

type looked struct {
	journal.Store
	times int
}

func (l *looked) Stock(ctx context.Context) (journal.Stock, error) {
	l.times++
	return l.Store.Stock(ctx)
}

func bound(t *testing.T, over journal.Store, b durable.Bounds) *bounded {
	t.Helper()
	p, findings := policy.Parse("test.yaml", []byte(counting))
	if p == nil {
		t.Fatal(findings)
	}
	l := &looked{Store: over}
	s := durable.Open(durable.Config{Journal: l, Bounds: b, Compile: func([]byte) (*policy.Policy, error) { return p, nil }, Log: hclog.NewNullLogger()})
	t.Cleanup(func() { s.Close(context.Background()) })
	return &bounded{t, s, l, p, time.Unix(1000, 0)}
}

// begin begins a run, which ends at once or goes on.
func (b *bounded) begin(name string, ends bool) {
	b.Helper()
	b.now = b.now.Add(time.Second)
	place := b.Begin(name, journal.Key{}, wire.Principal{}, b.now)
	r := run.New(run.Config{Policy: b.policy, Lasts: true}, b.now)
	if ends {
		r.Finish(run.Remark{}, b.now)
	}
	t, err := place.Write(r.Made(), time.Time{}, b.now, nil)
	if err != nil {
		b.Fatal(err)
	}
	if <-t.Done(); t.Err() != nil {
		b.Fatal(t.Err())
	}
}

func (b *bounded) bound(want int) {
	b.Helper()
	if n, err := b.Bound(b.Context()); n != want || err != nil {
		b.Fatalf("%d runs are removed, not %d: %v", n, want, err)
	}
}

func (b *bounded) ids(want string) {
	b.Helper()
	var ids []string
	for r, err := range journal.Rows(b.Context(), b.journal, journal.Query{}) {
		if err != nil {
			b.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	if got := strings.Join(ids, " "); got != want {
		b.Fatalf("%s are kept, not %s", got, want)
	}
}

// Those go that ended first, and when none is left that has ended no more begin; one that ends makes room.
func TestRunsBeyondTheBound(t *testing.T) {
	b := bound(t, memory.New(0), durable.Bounds{Runs: 4})
	b.begin("D", true)
	b.begin("C", true)
	b.begin("B", false)
	b.begin("A", true)
	b.bound(0)
	b.begin("E", false)
	b.bound(1)
	b.ids("A B C E")
	b.begin("F", false)
	b.begin("G", false)
	select {
	case <-b.Crowded():
	default:
		t.Error("there are too many runs, and nobody is told")
	}
	b.bound(2)
	b.ids("B E F G")
	if !b.Full() {
		t.Error("four runs go on of at most four, and more may begin")
	}
	b.begin("H", true) // as one does that nobody may refuse
	b.bound(1)
	if !b.Full() {
		t.Error("it is not full")
	}
	e, err := b.journal.Row(t.Context(), "E")
	if err != nil {
		t.Fatal(err)
	}
	e.Ended = b.now
	if each, err := b.journal.Commit(t.Context(), []journal.Change{{Run: "E", Head: &e.Head}}); err != nil || each[0] != nil {
		t.Fatal(each, err)
	}
	b.bound(0)
	if b.Full() {
		t.Error("one has ended, and none may begin")
	}
}

// A store that is far from its bound is not looked through for each run, and of one that is at it not for each either.
func TestStoresAreSeldomLookedThrough(t *testing.T) {
	b := bound(t, memory.New(0), durable.Bounds{Runs: 1000})
	for i := range 5000 {
		b.begin(fmt.Sprint("R", i), true)
		select {
		case <-b.Crowded():
			if _, err := b.Bound(t.Context()); err != nil {
				t.Fatal(err)
			}
		default:
		}
		if b.Full() {
			t.Fatal("runs that have ended fill the store")
		}
	}
	stock, err := b.journal.Store.Stock(t.Context())
	if err != nil || stock.Runs > 1000 || stock.Runs < 900 || b.journal.times > 2500 {
		t.Errorf("%+v, %v, looked through %d times", stock, err, b.journal.times)
	}
}

// A file's size is bounded by what has ended; what goes on stays, and then no more begin.
func TestFileBeyondItsSize(t *testing.T) {
	file, err := sqlite.Open(sqlite.Config{Path: filepath.Join(t.TempDir(), "runs.db"), Normal: true})
	if err != nil {
		t.Fatal(err)
	}
	const size = 400 << 10
	b := bound(t, file, durable.Bounds{Size: size})
	fill := func(from, to int, ends bool) {
		for i := from; i < to; i++ {
			id := fmt.Sprintf("R%04d", i)
			b.begin(id, ends)
			object := journal.Object{Kind: "much", Name: id, Run: id, Bytes: []byte(strings.Repeat("x", 10_000))}
			if each, err := file.Commit(t.Context(), []journal.Change{{Run: id, Objects: []journal.Object{object}}}); err != nil || each[0] != nil {
				t.Fatal(each, err)
			}
		}
	}
	fill(0, 10, false)
	fill(10, 100, true)
	n, err := b.Bound(t.Context())
	stock, _ := file.Stock(t.Context())
	if err != nil || n < 50 || stock.Used > size || stock.Used < size*8/10 || stock.Live != 10 || b.Full() {
		t.Errorf("%d are removed, and %+v left: %v", n, stock, err)
	}
	if first, _ := file.Ended(t.Context(), 1); len(first) != 1 || first[0] != fmt.Sprintf("R%04d", 10+n) {
		t.Errorf("what is left begins with %v", first)
	}
	taken, _ := file.Size(t.Context())
	fill(100, 140, true)
	if _, err := b.Bound(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again, _ := file.Size(t.Context()); again > taken*11/10 {
		t.Errorf("the file has grown from %d to %d bytes, though there was room in it", taken, again)
	}
	fill(140, 190, false)
	if _, err := b.Bound(t.Context()); err != nil || !b.Full() {
		t.Errorf("what goes on is too much, and more may begin: %v", err)
	}
	if stock, _ := file.Stock(t.Context()); stock.Live != 60 || stock.Runs != 60 {
		t.Errorf("%+v", stock)
	}
	for i := 140; i < 190; i++ {
		if each, err := file.Commit(t.Context(), []journal.Change{{Run: fmt.Sprintf("R%04d", i), Remove: true}}); err != nil || each[0] != nil {
			t.Fatal(each, err)
		}
	}
	if _, err := b.Bound(t.Context()); err != nil || b.Full() {
		t.Errorf("there is room again, and none may begin: %v", err)
	}
}
