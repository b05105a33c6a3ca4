package proxy_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// TestStorm does all at once, in real time and from many goroutines: calls, lists,
// cancellations, answers, changed lists, deaths, reconnections and reloads. The upstream
// checks that no call that steps is beside another of its run, and that none came
// where it is not allowed; every request has one answer in the end.
func TestStorm(t *testing.T) {
	source, err := os.ReadFile("../policies/crossroads.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, share := range []bool{false, true} {
		for _, detach := range []bool{false, true} {
			t.Run(fmt.Sprintf("share %v, detach %v", share, detach), func(t *testing.T) {
				storm(t, string(source), share, detach)
			})
		}
	}
}

func storm(t *testing.T, source string, share, detach bool) {
	w := &world{models: map[int]*model{}}
	w.rig = newRig(t, source, sharing(true), with(func(c *proxy.Config) {
		c.Share, c.TurnTimeout, c.CancelGrace, c.CallTimeout = share, 50*time.Millisecond, 20*time.Millisecond, 100*time.Millisecond
	}))
	w.up.detach, w.up.begun, w.up.ended = detach, w.begun, w.ended
	w.up.names(wire.Tools, crossroadsTools...)
	var clients, answering sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		answering.Go(func() { w.answerAll(stop) })
	}
	answering.Go(func() { w.reloadAlong(stop) })
	for range 6 {
		clients.Go(func() { w.rage(250) })
	}
	clients.Wait()
	w.p.Close()
	close(stop)
	answering.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, fault := range w.faults {
		t.Error(fault)
	}
}

// answerAll is the upstream, in one of its moods.
func (w *world) answerAll(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case k := <-w.up.arrived:
			switch n := rand.IntN(100); {
			case n < 60:
				k.result(ok)
			case n < 75:
				k.result(failed)
			case n < 80:
				k.fail(-32601)
			case n < 85:
				k.lose(&wire.CallError{Sent: n%2 == 0, Err: errLost})
			case n < 88:
				k.conn.end()
			case n < 92:
				k.conn.says(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, nil)
				k.result(ok)
			case n < 96:
				k.conn.says(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{}}`, k)
				k.result(ok)
			default: // no answer at all
			}
		}
	}
}

var errLost = fmt.Errorf("lost in the storm")

// rage is a client that cannot wait, and comes again when its session has ended.
func (w *world) rage(turns int) {
	c := w.begin()
	var all []*reply
	for range turns {
		switch n := rand.IntN(100); {
		case n < 70:
			tool := crossroadsTools[rand.IntN(len(crossroadsTools))]
			all = append(all, c.request("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"s":%d}}`, tool, c.number)))
		case n < 80:
			all = append(all, c.request("tools/list", ""))
		case n < 90 && len(all) > 0:
			c.cancel(all[rand.IntN(len(all))])
		case n < 95:
			c.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, rand.IntN(4)+1), c.own)
		case n < 98 && len(all) > 0:
			all[len(all)-1].wait()
		default:
			c.s.Close()
			c = w.begin()
		}
	}
	for id := range 100 {
		c.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id+1), c.own)
	}
	for _, r := range all {
		select {
		case <-r.answered:
		case <-time.After(20 * time.Second):
			w.mu.Lock()
			w.fault("request %d has no answer", r.id)
			w.mu.Unlock()
		}
		r.mu.Lock()
		if n := len(r.answers); n > 1 {
			w.t.Errorf("request %d has %d answers", r.id, n)
		}
		r.mu.Unlock()
	}
}
