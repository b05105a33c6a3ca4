package journal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
)

// faulty is a store whose commits take their time and fail.
type faulty struct {
	journal.Store
	commit func(real func() ([]error, error)) ([]error, error)
	read   func() error

	mu    sync.Mutex
	sizes []int // of the commits
}

func (f *faulty) Commit(ctx context.Context, changes []journal.Change) ([]error, error) {
	f.mu.Lock()
	f.sizes = append(f.sizes, len(changes))
	f.mu.Unlock()
	return f.commit(func() ([]error, error) { return f.Store.Commit(ctx, changes) })
}

func (f *faulty) Row(ctx context.Context, run string) (journal.Row, error) {
	if f.read != nil {
		if err := f.read(); err != nil {
			return journal.Row{}, err
		}
	}
	return f.Store.Row(ctx, run)
}

func (f *faulty) Records(ctx context.Context, run string, after uint64, limit int) ([]journal.Record, error) {
	if f.read != nil {
		if err := f.read(); err != nil {
			return nil, err
		}
	}
	return f.Store.Records(ctx, run, after, limit)
}

func works(real func() ([]error, error)) ([]error, error) { return real() }

// run writes a run's changes.
type run struct {
	id   string
	last journal.Point
}

func (r *run) begin() journal.Change {
	return journal.Change{Run: r.id, Begin: &journal.Row{ID: r.id}, Head: &journal.Head{State: "a"}}
}

func (r *run) next(bytes string) journal.Change {
	r.last = chain.Next(r.id, r.last, []byte(bytes))
	return journal.Change{Run: r.id, Records: []journal.Record{{Seq: r.last.Seq, Hash: r.last.Hash, Bytes: []byte(bytes)}}}
}

var chain = journal.NewChain(nil)

func submit(t rapid.TB, w *journal.Committer, c journal.Change, when journal.When) *journal.Ticket {
	t.Helper()
	ticket, err := w.Submit(c, when)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

func end(t rapid.TB, w *journal.Committer) {
	t.Helper()
	if err := w.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// What comes while a commit runs goes with the next one, whole.
func TestWhatComesMeanwhileIsTheNextCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan struct{})
		f := &faulty{Store: memory.New(0), commit: func(real func() ([]error, error)) ([]error, error) { <-turn; return real() }}
		w := journal.NewCommitter(journal.CommitterConfig{Store: f})
		r := &run{id: "r"}
		first := submit(t, w, r.begin(), journal.Now)
		synctest.Wait()
		var rest []*journal.Ticket
		for i := range 50 {
			rest = append(rest, submit(t, w, r.next(fmt.Sprint(i)), journal.When(i%3)))
		}
		turn <- struct{}{}
		<-first.Done()
		turn <- struct{}{}
		for _, x := range rest {
			if <-x.Done(); x.Err() != nil {
				t.Error(x.Err())
			}
		}
		end(t, w)
		if !slices.Equal(f.sizes, []int{1, 50}) {
			t.Errorf("%v", f.sizes)
		}
	})
}

// What can wait goes with what cannot, and else soon.
func TestWhatCanWaitIsWrittenSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memory.New(0), commit: works}
		w := journal.NewCommitter(journal.CommitterConfig{Store: f, Delay: 100 * time.Millisecond})
		r := &run{id: "r"}
		<-submit(t, w, r.begin(), journal.Now).Done()
		began := time.Now()
		a := submit(t, w, r.next("a"), journal.Later)
		synctest.Wait()
		b := submit(t, w, r.next("b"), journal.Soon)
		<-a.Done()
		<-b.Done()
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("they waited %s", took)
		}
		began = time.Now()
		c := submit(t, w, r.next("c"), journal.Later)
		synctest.Wait()
		<-submit(t, w, r.next("d"), journal.Now).Done()
		<-c.Done()
		if took := time.Since(began); took != 0 {
			t.Errorf("they waited %s", took)
		}
		end(t, w)
		if !slices.Equal(f.sizes, []int{1, 2, 2}) {
			t.Errorf("%v", f.sizes)
		}
	})
}

// While the store is gone nothing is let begin, what has begun ends, and all of it is written when the store is back.
func TestStoreThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("no route to the database")
		var broken sync.Map
		f := &faulty{Store: memory.New(0), commit: func(real func() ([]error, error)) ([]error, error) {
			if _, is := broken.Load("yes"); is {
				return nil, gone
			}
			return real()
		}}
		var health []error
		var w *journal.Committer
		ready := make(chan struct{})
		w = journal.NewCommitter(journal.CommitterConfig{Store: f, Max: 3, Health: func(err error) { health = append(health, err) }, Wrote: func(x journal.Wrote) {
			<-ready
			if _, err := w.Waiting(); x.Err == nil && err != nil {
				t.Errorf("it is told that something is written before it is known that the store is there again: %v", err)
			}
		}})
		close(ready)
		r := &run{id: "r"}
		<-submit(t, w, r.begin(), journal.Now).Done()
		broken.Store("yes", true)
		begun := submit(t, w, r.next("begun"), journal.Now)
		synctest.Wait()
		if _, err := w.Submit(journal.Change{Run: "other", Begin: &journal.Row{ID: "other"}, Head: &journal.Head{}}, journal.Now); !errors.Is(err, gone) {
			t.Errorf("something new: %v", err)
		}
		ended := submit(t, w, r.next("ended"), journal.Must)
		time.Sleep(time.Hour)
		select {
		case <-begun.Done():
			t.Error("it is written")
		default:
		}
		broken.Delete("yes")
		<-begun.Done()
		<-ended.Done()
		if begun.Err() != nil || ended.Err() != nil {
			t.Error(begun.Err(), ended.Err())
		}
		synctest.Wait()
		end(t, w)
		if len(health) != 2 || !errors.Is(health[0], gone) || health[1] != nil {
			t.Errorf("%v", health)
		}
		if n := len(f.sizes); n > 3700 {
			t.Errorf("%d commits in an hour", n)
		}
	})
}

// There is room for so many, and always for the end of what was let begin.
func TestNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan struct{})
		f := &faulty{Store: memory.New(0), commit: func(real func() ([]error, error)) ([]error, error) { <-turn; return real() }}
		w := journal.NewCommitter(journal.CommitterConfig{Store: f, Max: 2})
		r := &run{id: "r"}
		submit(t, w, r.begin(), journal.Now)
		synctest.Wait()
		submit(t, w, r.next("a"), journal.Now)
		if !w.Room() {
			t.Error("there is room for one more")
		}
		submit(t, w, r.next("b"), journal.Later)
		at := r.last
		if w.Room() {
			t.Error("there is room for more than fits")
		}
		if _, err := w.Submit(r.next("c"), journal.Later); !errors.Is(err, journal.ErrFull) {
			t.Errorf("%v", err)
		}
		r.last = at
		submit(t, w, r.next("d"), journal.Must)
		submit(t, w, r.next("e"), journal.Soon)
		close(turn)
		end(t, w)
		if _, err := w.Submit(r.next("f"), journal.Must); !errors.Is(err, journal.ErrClosed) || w.Room() {
			t.Errorf("%v", err)
		}
	})
}

// Whoever closes it and does not wait is told what may be lost.
func TestEndWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memory.New(0), commit: func(func() ([]error, error)) ([]error, error) { return nil, errors.New("gone") }}
		w := journal.NewCommitter(journal.CommitterConfig{Store: f})
		r := &run{id: "r"}
		a := submit(t, w, r.begin(), journal.Now)
		synctest.Wait()
		b := submit(t, w, r.next("b"), journal.Must)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := w.Close(ctx); err == nil || err.Error() != "2 changes are not known to be written: gone" {
			t.Errorf("%v", err)
		}
		if <-a.Done(); !errors.Is(a.Err(), journal.ErrClosed) {
			t.Error(a.Err())
		}
		if <-b.Done(); !errors.Is(b.Err(), journal.ErrClosed) {
			t.Error(b.Err())
		}
	})
}

// Commits fail before and after they are made, and so do the questions which: each change is made once, in its order,
// and what conflicts is told so.
func TestCommitsThatFail(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		plan := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 40).Draw(rt, "faults")
		seed := rapid.SliceOfN(rapid.IntRange(0, 9), 5, 60).Draw(rt, "changes")
		var failures []string
		synctest.Test(t, func(*testing.T) {
			store := memory.New(0)
			step := 0
			fault := func() int {
				if step++; step < len(plan) {
					return plan[step]
				}
				return 5
			}
			broken := errors.New("broken")
			f := &faulty{Store: store, commit: func(real func() ([]error, error)) ([]error, error) {
				switch fault() {
				case 0:
					return nil, broken
				case 1, 2:
					_, _ = real()
					return nil, broken
				}
				return real()
			}, read: func() error {
				if fault() == 0 {
					return broken
				}
				return nil
			}}
			w := journal.NewCommitter(journal.CommitterConfig{Store: f})
			runs := []*run{{id: "a"}, {id: "b"}, {id: "c"}}
			var tickets []*journal.Ticket
			var wanted []error
			add := func(c journal.Change, want error) {
				tickets, wanted = append(tickets, submit(rt, w, c, journal.Must)), append(wanted, want)
			}
			for _, r := range runs {
				add(r.begin(), nil)
			}
			for i, n := range seed {
				r := runs[n%3]
				switch {
				case n == 9: // who does not know of the last one
					stale := run{r.id, journal.Point{}}
					if r.last.Seq > 0 {
						add(stale.next(fmt.Sprint("stale", i)), journal.ErrConflict)
					}
				case n >= 6:
					c := r.next(fmt.Sprint(i))
					c.Head = &journal.Head{At: r.last, Checkpoint: r.last.Seq}
					add(c, nil)
					add(journal.Change{Run: r.id, Cut: r.last.Seq}, nil)
				default:
					add(r.next(fmt.Sprint(i)), nil)
				}
				if n%2 == 0 {
					synctest.Wait()
				}
			}
			for i, x := range tickets {
				if <-x.Done(); !errors.Is(x.Err(), wanted[i]) {
					failures = append(failures, fmt.Sprintf("change %d: %v, want %v", i, x.Err(), wanted[i]))
				}
			}
			end(rt, w)
			for _, r := range runs {
				row, err := store.Row(context.Background(), r.id)
				if err != nil || row.Last != r.last {
					failures = append(failures, fmt.Sprintf("%+v, %v, want %+v", row, err, r.last))
				}
				if fault, err := chain.Verify(&row, journal.All(context.Background(), store, r.id)); fault != nil || err != nil {
					failures = append(failures, fmt.Sprint(fault, err))
				}
			}
		})
		if failures != nil {
			rt.Fatal(failures)
		}
	})
}

// Who swaps an object is told once whether it was swapped, before anybody hears of the change, and also where nobody knows at first
// what has become of the commit.
func TestSwapsOfACommit(t *testing.T) {
	for name, x := range map[string]struct {
		real, lost bool // the commit is made; its confirmation is lost
		other      bool // somebody else has swapped it before
		want       string
	}{
		"made":                        {real: true, want: "true"},
		"somebody else was sooner":    {real: true, other: true, want: "false"},
		"unconfirmed":                 {real: true, lost: true, want: "true"},
		"unconfirmed, and not made":   {lost: true, want: "true"},
		"unconfirmed, and another's":  {real: true, lost: true, other: true, want: "false"},
		"not made, and another's too": {lost: true, other: true, want: "false"},
	} {
		for _, records := range []bool{true, false} {
			t.Run(fmt.Sprint(name, records), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, r := memory.New(0), run{id: "r"}
					fails := x.lost
					f := &faulty{Store: s, commit: func(real func() ([]error, error)) (each []error, err error) {
						if x.real || !fails {
							each, err = real()
						}
						if fails {
							fails, err = false, errors.New("lost")
						}
						return each, err
					}}
					first := []journal.Change{r.begin()}
					if x.other {
						first = append(first, journal.Change{Objects: []journal.Object{{Kind: "k", Name: "n", Bytes: []byte("other")}}})
					}
					if _, err := s.Commit(t.Context(), first); err != nil {
						t.Fatal(err)
					}
					w := journal.NewCommitter(journal.CommitterConfig{Store: f})
					var told []string
					c := journal.Change{}
					if records {
						c = r.next("1")
					}
					c.Objects = []journal.Object{{Kind: "k", Name: "n", Swap: true, Bytes: []byte("1")}}
					c.Swapped = func(_ *journal.Object, ok bool) { told = append(told, fmt.Sprint(ok)) }
					ticket, err := w.Submit(c, journal.Must)
					if err != nil {
						t.Fatal(err)
					}
					<-ticket.Done()
					if ticket.Err() != nil || !slices.Equal(told, []string{x.want}) {
						t.Errorf("%v, %v", ticket.Err(), told)
					}
					if err := w.Close(t.Context()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
