package proxy_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
)

// narrow is an Auditor that has no room while it is blocked, and counts what it is told all the same.
type narrow struct {
	mu    sync.Mutex    // guards what follows
	free  chan struct{} // nil: there is room; else closed when there is again
	lines int
}

func (n *narrow) block() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.free = make(chan struct{})
}

func (n *narrow) unblock() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.free)
	n.free = nil
}

func (n *narrow) told() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lines
}

func (n *narrow) Room() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.free == nil
}

func (n *narrow) Await(ctx context.Context) {
	n.mu.Lock()
	free := n.free
	n.mu.Unlock()
	if free != nil {
		select {
		case <-free:
		case <-ctx.Done():
		}
	}
}

func (n *narrow) Entered(observe.Entry)      {}
func (n *narrow) Decided(d observe.Decision) { n.Begin(d) }

func (n *narrow) Begin(observe.Decision) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines++
	return uint64(n.lines)
}

func (n *narrow) End(uint64, observe.Peer, *observe.Operation) {}

// What has a line in the audit waits until there is room for it: who comes back to a call that has asked them, and who has no
// run, as all others. While a drain lasts who comes back is let through.
func TestWhoComesBackWaitsForRoomInTheAudit(t *testing.T) {
	a := &narrow{}
	bubble(t, review, func(r *rig) {
		c := r.modern()
		k, answer := r.elicited(c, "status")
		keys, state := required(t, answer)
		for _, state := range []string{"fsm1.guess", state} {
			a.block()
			before := a.told()
			back := c.comeBack("status", keys[0], state, `{"action":"accept"}`)
			synctest.Wait()
			if n := a.told(); n != before || !back.pending() || strings.Contains(strings.Join(k.conn.notified(), ""), `"id":7`) {
				t.Errorf("%d lines more, it waits: %v, the server is told %q", n-before, back.pending(), k.conn.notified())
			}
			if state != "fsm1.guess" {
				r.p.Refuse()
			}
			a.unblock()
			synctest.Wait()
			if state == "fsm1.guess" {
				has(t, back.wait(), "-32602")
				continue
			}
			k.result(`{"content":[]}`)
			has(t, back.wait(), `"complete"`)
		}
	}, with(func(c *proxy.Config) { c.Telemetry.Auditor = a }))
}
