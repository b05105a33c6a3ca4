package runs_test

import (
	"testing"
	"testing/synctest"

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
