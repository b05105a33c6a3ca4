package runs_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// disk is a journal that outlives processes, and that can be slow, or unable to write.
type disk struct {
	journal.Store
	works chan struct{} // has one while it is not slow

	mu     sync.Mutex // guards what follows
	full   error      // of each commit; nil: it works
	found  func()     // is called before a run is looked for; nil: nothing is
	edited string     // what stands in records in place of "success"; "": it does
	reads  int        // of records
}

func newDisk() *disk {
	d := &disk{Store: memory.New(0), works: make(chan struct{}, 1)}
	d.goesOn()
	return d
}

func (d *disk) Close() error { return nil }

// stops has no commit come to its end until it goesOn.
func (d *disk) stops()  { <-d.works }
func (d *disk) goesOn() { d.works <- struct{}{} }

func (d *disk) fill(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = err
}

func (d *disk) Commit(ctx context.Context, changes []journal.Change) ([]error, error) {
	d.stops()
	defer d.goesOn()
	d.mu.Lock()
	err := d.full
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return d.Store.Commit(ctx, changes)
}

func (d *disk) finds(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found = do
}

func (d *disk) Find(ctx context.Context, k journal.Key) (journal.Row, error) {
	d.mu.Lock()
	do := d.found
	d.mu.Unlock()
	if do != nil {
		do()
	}
	return d.Store.Find(ctx, k)
}

// edits has something else stand in records from now on, and returns how often they were read.
func (d *disk) edits(to string) (reads int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.edited = to
	return d.reads
}

func (d *disk) Records(ctx context.Context, id string, after uint64, limit int) ([]journal.Record, error) {
	all, err := d.Store.Records(ctx, id, after, limit)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	for i := range all {
		if d.edited != "" {
			all[i].Bytes = bytes.ReplaceAll(all[i].Bytes, []byte("success"), []byte(d.edited))
		}
	}
	return all, err
}

// process is a registry over a journal, with the store between them.
type process struct {
	*runs.Registry
	s    *durable.Store
	once sync.Once
	t    *testing.T
}

// kept is a process that starts.
func kept(t *testing.T, j journal.Store, c runs.Config) *process {
	t.Helper()
	c.Policy = parse(t, two)
	c.Process, c.Idle, c.Max, c.MaxPerPrincipal, c.MaxStranded = "it", time.Hour, 10, 10, time.Hour
	c.Telemetry = &observe.Telemetry{}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	c.Store = durable.Open(durable.Config{Journal: j, Log: hclog.NewNullLogger(), Compile: func([]byte) (*policy.Policy, error) { return c.Policy, nil }})
	if err := c.Store.Keep(c.Policy, []byte("it")); err != nil {
		t.Fatal(err)
	}
	p := &process{Registry: runs.New(c), s: c.Store, t: t}
	t.Cleanup(p.ends)
	return p
}

// ends ends the process.
func (p *process) ends() {
	p.once.Do(func() {
		p.Close()
		if err := p.s.Close(context.Background()); err != nil {
			p.t.Error(err)
		}
	})
}

// keyed are keys of which that of clients without sessions is of a kind.
func keyed(k runs.Key) (keys [2]runs.Key) {
	keys[bridge.Stateless.Index()] = k
	return keys
}

// steps has a call move a run from a to b.
func steps(t *testing.T, r *runs.Run) {
	t.Helper()
	c := entersAs(r, "go")
	if c == nil {
		t.Fatal("it is not let through")
	}
	begins(t, r, c)
	if _, _, err := r.Settle(&c.Call, run.End{Outcome: policy.Success}); err != nil {
		t.Fatal(err)
	}
	r.Tell(nil, run.Shifts{r.Pass(&c.Call)})
	if at := r.Where().State(); at != "b" {
		t.Fatalf("it is in %s", at)
	}
}

func wantUnavailable(t *testing.T, when string, why *runs.Missing) {
	t.Helper()
	if why == nil || why.Code != policy.StoreUnavailable {
		t.Errorf("%s: %v", when, why)
	}
}

// Where the store is slow, or cannot be written, a run that is to begin anew with its server is not to be had; once it can
// be written it has begun anew.
func TestASlowStoreWhereRunsBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newDisk(), runs.Config{Keys: keyed(runs.Key{Kind: runs.Handle}), Forgets: true}
		p := kept(t, d, c)
		id, err := p.Start(bridge.Stateless, ann)
		if err != nil {
			t.Fatal(err)
		}
		r, _ := find(p.Registry, id, ann)
		steps(t, r)
		p.ends()

		p = kept(t, d, c)
		mustWrite(t, p.s)
		d.stops()
		for range 2 {
			_, why := find(p.Registry, id, ann)
			wantUnavailable(t, "while the store is slow", why)
		}
		d.goesOn()
		r, why := find(p.Registry, id, ann)
		if why != nil {
			t.Fatal(why)
		}
		steps(t, r) // from its beginning on
		p.ends()

		p = kept(t, d, c)
		mustWrite(t, p.s)
		d.fill(errors.New("no space left on device"))
		if _, err := p.s.KeepSession("another", []byte("{}")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if p.s.Down() == nil {
			t.Fatal("it can be written")
		}
		_, why = find(p.Registry, id, ann)
		wantUnavailable(t, "while the store cannot be written", why)
		d.fill(nil)
		for p.s.Down() != nil {
			time.Sleep(time.Second) // as the store is tried
		}
		if r, why = find(p.Registry, id, ann); why != nil {
			t.Fatal(why)
		}
		steps(t, r)
		p.ends()
	})
}

// live are the runs of a journal that have not ended.
func live(t *testing.T, j journal.Store) (ids []string) {
	t.Helper()
	for r, err := range journal.Rows(t.Context(), j, journal.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Ended.IsZero() {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// Who asks for a run while it is accepted gets that one: none begins meanwhile.
func TestNoRunBeginsWhileOneIsAccepted(t *testing.T) {
	for _, k := range []runs.Key{{Kind: runs.Process}, {Kind: runs.Principal}} {
		t.Run(k.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, c := newDisk(), runs.Config{Keys: keyed(k)}
				asks := func(p *process) (*runs.Run, *runs.Missing) {
					return p.Find(bridge.Stateless, &observe.Peer{Principal: ann}, "", true)
				}
				p := kept(t, d, c)
				r, why := asks(p)
				if why != nil {
					t.Fatal(why)
				}
				mustWrite(t, p.s)
				other := kept(t, d, c)
				if err := other.Resume(); err != nil {
					t.Fatal(err)
				}
				same, why := asks(other)
				if why != nil || same.Name != r.Name {
					t.Fatal("it is not read", why)
				}
				if _, err := same.Annotate(run.Remark{Who: "eve", Text: "elsewhere"}); err != nil {
					t.Fatal(err)
				}
				other.ends()
				if _, err := r.Annotate(run.Remark{Who: "olga", Text: "here"}); err == nil || enters(r) != nil {
					t.Fatal("it is not shut", err)
				}

				reads, goes := 0, make(chan struct{})
				d.finds(func() {
					if reads++; reads == 2 { // it has left memory
						<-goes
					}
				})
				accepted, asked := make(chan error, 1), make(chan *runs.Run, 1)
				go func() {
					_, err := p.Accept(r, run.Remark{Who: "olga"})
					accepted <- err
				}()
				synctest.Wait()
				go func() {
					r, why := asks(p)
					if why != nil {
						t.Error(why)
					}
					asked <- r
				}()
				synctest.Wait()
				close(goes)
				if err := <-accepted; err != nil {
					t.Error(err)
				}
				again := <-asked
				if again == r || again.Name != r.Name {
					t.Fatalf("it is %s, of before: %t", again.Name, again == r)
				}
				steps(t, again)
				if ids := live(t, d); len(ids) != 1 {
					t.Errorf("there are %q", ids)
				}
				p.ends()
			})
		})
	}
}

// Of a run that is shut, since another process has written it, nothing more is written, also where its session ends.
func TestNothingIsWrittenOfAShutRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, from := newDisk(), &observe.Peer{Session: "s", ID: "a session", Principal: ann}
		p := kept(t, d, runs.Config{})
		r, why := p.OfClient(from)
		if why != nil {
			t.Fatal(why)
		}
		on := &member{client: true}
		p.Join(r, on)
		steps(t, r)
		mustWrite(t, p.s)
		other, again := kept(t, d, runs.Config{}), *from
		again.Resumed = true
		same, why := other.OfClient(&again)
		if why != nil {
			t.Fatal(why)
		}
		if _, err := same.Annotate(run.Remark{Who: "eve", Text: "elsewhere"}); err != nil {
			t.Fatal(err)
		}
		other.ends()
		if _, err := r.Annotate(run.Remark{Who: "olga", Text: "here"}); err == nil {
			t.Fatal("it is not shut")
		}
		p.Part(r, on, false)
		p.ends()
		for id, err := range journal.VerifyAll(t.Context(), d, nil, durable.Verifier(nil)) {
			if err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}

// A run that another process has ended is shut where it is in memory, and leaves that when an operator would accept it: who
// asks next begins another.
func TestAcceptOfARunThatHasEndedElsewhere(t *testing.T) {
	for _, k := range []runs.Key{{Kind: runs.Process}, {Kind: runs.Principal}} {
		t.Run(k.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, c := newDisk(), runs.Config{Keys: keyed(k)}
				asks := func(p *process) *runs.Run {
					r, why := p.Find(bridge.Stateless, &observe.Peer{Principal: ann}, "", true)
					if why != nil {
						t.Fatal(why)
					}
					return r
				}
				p := kept(t, d, c)
				r := asks(p)
				mustWrite(t, p.s)
				other := kept(t, d, c)
				if err := other.Resume(); err != nil {
					t.Fatal(err)
				}
				if _, err := other.EndBy(asks(other), run.Remark{Who: "eve"}); err != nil {
					t.Fatal(err)
				}
				other.ends()
				if _, err := r.Annotate(run.Remark{Who: "olga", Text: "here"}); err == nil {
					t.Fatal("it is not shut")
				}
				if _, err := p.Accept(r, run.Remark{Who: "olga"}); !errors.Is(err, runs.ErrEnded) {
					t.Error(err)
				}
				if again := asks(p); again == r || again.Name == r.Name {
					t.Error("it is there still")
				} else {
					steps(t, again)
				}
				p.ends()
			})
		})
	}
}

// Who comes first to a run has it once that is written, and nobody else has it meanwhile.
func TestWhoComesFirstIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newDisk(), runs.Config{Keys: keyed(runs.Key{Kind: runs.Handle})}
		p := kept(t, d, c)
		_, id, err := p.StartBy(runs.Beginning{Key: "handle"})
		if err != nil {
			t.Fatal(err)
		}
		d.stops()
		_, why := find(p.Registry, id, ann)
		wantUnavailable(t, "while it is not written whose it is", why)
		if _, why := find(p.Registry, id, bob); why != runs.ErrNotFound {
			t.Errorf("another: %v", why)
		}
		d.goesOn()
		if _, why := find(p.Registry, id, ann); why != nil {
			t.Error(why)
		}
		p.ends()
	})
}

// The run of a session that has ended is nobody's, from that moment on: who comes back waits until that is written, and so
// does the end of the process.
func TestASessionsEndIsWritten(t *testing.T) {
	for name, used := range map[string]bool{"used": true, "unused": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, from := newDisk(), &observe.Peer{Session: "s", ID: "a session", Principal: ann}
				back := *from
				back.Resumed = true
				begins := func() (p *process, ends func()) {
					p = kept(t, d, runs.Config{})
					r, why := p.OfClient(from)
					on := &member{client: true}
					if why != nil || p.Join(r, on) != nil {
						t.Fatal("it does not begin", why)
					}
					if used {
						steps(t, r)
					}
					mustWrite(t, p.s)
					d.stops()
					return p, func() {
						p.Part(r, on, false)
						if p.Join(r, &member{client: true}) == nil {
							t.Error("somebody joins a run that has ended")
						}
					}
				}
				p, ends := begins()
				ends()
				_, why := p.OfClient(&back)
				wantUnavailable(t, "until it is written", why)
				d.goesOn()
				if _, why := p.OfClient(&back); why != runs.ErrNotFound || len(p.All()) != 0 {
					t.Errorf("then: %v, and %d runs are in memory", why, len(p.All()))
				}
				p.ends()

				p, ends = begins()
				ends()
				over := make(chan struct{})
				go func() {
					defer close(over)
					p.ends()
				}()
				synctest.Wait()
				select {
				case <-over:
					t.Error("the process has ended, and it is not written")
				default:
				}
				d.goesOn()
				<-over
				p = kept(t, d, runs.Config{})
				if _, why := p.OfClient(&back); why != runs.ErrNotFound || len(live(t, d)) != 0 {
					t.Errorf("after a restart: %v, and %d runs go on", why, len(live(t, d)))
				}
				p.ends()
			})
		})
	}
}

// A session that could not go on just now has all that was made of its run when it is asked for again.
func TestASessionThatCouldNotGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, from := newDisk(), &observe.Peer{Session: "s", ID: "a session", Principal: ann}
		p := kept(t, d, runs.Config{})
		if r, why := p.OfClient(from); why != nil {
			t.Fatal(why)
		} else {
			steps(t, r)
		}
		p.ends()

		p = kept(t, d, runs.Config{})
		from.Resumed = true
		r, why := p.OfClient(from)
		if why != nil {
			t.Fatal(why)
		}
		on := &member{client: true}
		p.Join(r, on)
		mustWrite(t, p.s)
		d.stops()
		said := make(chan uint64, 1)
		go func() {
			seq, _ := r.Annotate(run.Remark{Who: "olga", Text: "here"}) // it is not written in time
			said <- seq
		}()
		synctest.Wait()
		p.Part(r, on, true)
		_, why = p.OfClient(from)
		wantUnavailable(t, "until it is written", why)
		go func() {
			time.Sleep(time.Second)
			d.goesOn()
		}()
		again, why := p.OfClient(from)
		if why != nil {
			t.Fatal(why)
		}
		before := <-said
		if seq, err := again.Annotate(run.Remark{Who: "olga", Text: "there"}); err != nil || seq != before+1 {
			t.Errorf("%d behind %d, %v", seq, before, err)
		}
		p.ends()
	})
}

// Who migrates runs is told of how many that cannot be written, or not in time, which is one for all of them.
func TestMigrationThatIsUnwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newDisk(), runs.Config{Keys: keyed(runs.Key{Kind: runs.Handle})}
		p := kept(t, d, c)
		began(t, p.Registry)
		r := began(t, p.Registry)
		steps(t, r)
		steps(t, began(t, p.Registry))
		if done := p.Reload(parse(t, "version: 1\ninitial: a\nstates: {a: {tools: {go: a}}}\n")); done.Stranded != 2 {
			t.Fatalf("%+v", done)
		}
		mustWrite(t, p.s)
		d.stops()
		since := time.Now()
		if done := p.Migrate(); done != (runs.Migrated{Runs: 3, Unwritten: 2}) {
			t.Errorf("by a store that is slow: %+v", done)
		}
		if took := time.Since(since); took != p.s.Timeout() {
			t.Errorf("it took %v", took)
		}
		d.goesOn()
		mustWrite(t, p.s)
		synctest.Wait()
		if at := r.Info(); at.State != "a" || !at.Stranded.IsZero() {
			t.Errorf("it is in %s, stranded at %s", at.State, at.Stranded)
		}

		p.Reload(parse(t, "version: 1\ninitial: c\nstates: {c: {tools: {go: c}}}\n"))
		began(t, p.Registry)
		mustWrite(t, p.s)
		d.fill(errors.New("no space left on device"))
		if _, err := p.s.KeepSession("another", []byte("{}")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if done := p.Migrate(); done != (runs.Migrated{Runs: 4, Unwritten: 3}) {
			t.Errorf("by a store that cannot be written: %+v", done)
		}
		d.fill(nil)
		for p.s.Down() != nil {
			time.Sleep(time.Second) // as the store is tried
		}
		if done := p.Migrate(); done != (runs.Migrated{Runs: 4, Restarted: 3}) {
			t.Errorf("by one that can be again: %+v", done)
		}
		p.ends()
	})
}

// A run that is damaged is read again by its clients once a minute at the most, by operators whenever they look, and is
// logged once until it can be read.
func TestADamagedRunIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d, c := newDisk(), runs.Config{Keys: keyed(runs.Key{Kind: runs.Handle})}
		p := kept(t, d, c)
		r, id, err := p.StartBy(runs.Beginning{Key: "handle", Owner: ann})
		if err != nil {
			t.Fatal(err)
		}
		steps(t, r)
		p.ends()

		c.Log = hclog.New(&hclog.LoggerOptions{Output: &log})
		p = kept(t, d, c)
		before := d.edits("failure")
		finds := func(when string, times, wantReads, wantLogged int) {
			t.Helper()
			for range times {
				if _, why := find(p.Registry, id, ann); why != runs.ErrDamaged {
					t.Fatalf("%s: %v", when, why)
				}
			}
			reads, logged := d.edits("failure")-before, strings.Count(log.String(), "a run cannot be read")
			if reads != wantReads || logged != wantLogged {
				t.Errorf("%s: read %d times, want %d, and logged %d times, want %d", when, reads, wantReads, logged, wantLogged)
			}
		}
		finds("at first", 10, 1, 1)
		time.Sleep(2 * time.Minute)
		finds("minutes later", 10, 2, 1)
		if _, err := p.Like(r.Name); err != runs.ErrDamaged {
			t.Error(err)
		}
		finds("when an operator has looked", 10, 3, 1)
		d.edits("")
		if again, err := p.Like(r.Name); err != nil || again.Name != r.Name {
			t.Fatal("it was restored, and is not read", err)
		}
		if _, why := find(p.Registry, id, ann); why != nil {
			t.Error(why)
		}
		time.Sleep(3 * time.Hour) // it leaves memory
		before = d.edits("failure")
		finds("damaged anew", 10, 1, 2)
		p.ends()
	})
}
