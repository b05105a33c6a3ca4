package runs_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// Until it is durable that a run has begun nobody has it, the second who asks for it neither: another process has begun the run of
// the key first, which all of them get then.
func TestNobodyHasARunThatAnotherProcessHasBegunFirst(t *testing.T) {
	for _, k := range []runs.Key{{Kind: runs.Process}, {Kind: runs.Principal}} {
		t.Run(k.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := newDisk()
				first := newDisk()
				first.Store = slow.Store
				a, b := kept(t, &common{disk: slow}, runs.Config{Keys: keyed(k)}), kept(t, &common{disk: first}, runs.Config{Keys: keyed(k)})
				mustWrite(t, a.s)
				asks := func(p *process) *runs.Run {
					r, why := p.Find(bridge.Stateless, &observe.Peer{Principal: ann}, "", true)
					if why != nil {
						t.Error(why)
					}
					return r
				}
				got := make(chan *runs.Run, 3)
				slow.stops()
				for range cap(got) {
					go func() { got <- asks(a) }()
					synctest.Wait()
				}
				if len(got) > 0 {
					t.Error("a run is used that has not begun")
				}
				theirs := asks(b)
				slow.goesOn()
				for range cap(got) {
					if r := <-got; r.Name != theirs.Name {
						t.Errorf("it is %s, want %s", r.Name, theirs.Name)
					}
				}
				if r := asks(a); r.Name != theirs.Name {
					t.Errorf("later it is %s, want %s", r.Name, theirs.Name)
				}
				if ids := live(t, slow); len(ids) != 1 {
					t.Errorf("there are %q", ids)
				}
				a.ends()
				b.ends()
			})
		})
	}
}

// A process that ends gives its runs away many at a time, but for those in which something is under way.
func TestRunsAreGivenAwayManyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &common{disk: newDisk()}
		p := kept(t, c, runs.Config{})
		var all []*runs.Run
		for i := range 250 {
			r, why := p.OfClient(&observe.Peer{Session: "s", ID: fmt.Sprint("session ", i), Principal: ann})
			if why != nil {
				t.Fatal(why)
			}
			all = append(all, r)
		}
		busy := &member{client: true}
		busy.busy.Store(true)
		p.Join(all[0], busy)
		mustWrite(t, p.s)
		ctx, end := context.WithCancel(t.Context())
		given := make(chan struct{})
		go func() {
			defer close(given)
			p.GiveAway(ctx)
		}()
		synctest.Wait()
		gone := func() (n, times int) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, x := range c.released {
				if n += x; x > 0 {
					times++
				}
			}
			return n, times
		}
		if n, times := gone(); n != 249 || times > 3 || all[0].Lost() {
			t.Errorf("%d are given away, at %d times", n, times)
		}
		busy.busy.Store(false)
		time.Sleep(time.Second) // as it is looked again
		if n, _ := gone(); n != 250 || busy.closed.Load() != 1 {
			t.Errorf("%d are given away, and the session is closed %d times", n, busy.closed.Load())
		}
		end()
		<-given
		p.ends()
	})
}
