package proxy_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// both is a policy in whose only state two resources may be read.
const both = "version: 1\ninitial: a\nstates:\n  a: {tools: {status: }, resources: {\"file:///plan\": , \"file:///diff\": }}\n"

func streamOf(uri string) string {
	return meta(`{"notifications":{"resourceSubscriptions":["` + uri + `"]}}`)
}

// A stream that begins while a connection is brought to where the lost one was is
// heard too: what it wants was not yet wanted when that began.
func TestListenWhileAConnectionIsRestored(t *testing.T) {
	for _, last := range []string{"resources/subscribe file:///diff", "listen file:///diff file:///plan"} {
		bubble(t, both, func(r *rig) {
			if strings.HasPrefix(last, "listen") {
				modernUpstream(nil, r.up)
			}
			c := r.modern()
			slow := false
			restoring := func() {
				if slow {
					slow = false
					<-time.After(time.Second) // of the bubble's own time
				}
			}
			r.up.listens = restoring
			r.up.answers(func(k *upcall) (string, bool) {
				if k.m.Method == "resources/subscribe" {
					restoring()
				}
				return ok, true
			})
			c.request("subscriptions/listen", streamOf("file:///plan"))
			synctest.Wait()
			r.up.conn(0).end()
			slow = true
			call := c.request("tools/call", meta(`{"name":"status"}`))
			if !call.pending() {
				t.Fatal("the connection is there already")
			}
			l := c.request("subscriptions/listen", streamOf("file:///diff"))
			synctest.Wait()
			has(t, strings.Join(l.messages(), ""), "file:///diff")
			call.wait()
			synctest.Wait()
			equal(t, "asked for", r.up.count(last), 1)
		})
	}
}

// Of two that subscribe at once neither takes the other's subscription away.
func TestTwoSubscribeAtOnce(t *testing.T) {
	bubble(t, both, func(r *rig) {
		a, b := r.connect(plainHello), r.connect(plainHello)
		first, ended := true, make(chan string, 1)
		r.up.listens = func() { // of the first, which has looked at what is subscribed to
			if !first {
				return
			}
			first = false
			go func() { ended <- b.ask("resources/subscribe", `{"uri":"file:///diff"}`) }()
			for range 10000 {
				if runtime.Gosched(); len(r.up.reached()) > 0 {
					return
				}
			}
		}
		has(t, a.ask("resources/subscribe", `{"uri":"file:///plan"}`), `"result"`)
		has(t, <-ended, `"result"`)
		told := r.up.reached()
		equal(t, "told last", told[len(told)-1], "listen file:///diff file:///plan")
	}, sharing(false), modernUpstream)
}
