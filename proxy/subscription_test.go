package proxy_test

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
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

// A subscription that was to end is kept if another session wants it by the time
// there is a connection to end it on.
func TestUnsubscribeThatWaitsForAConnection(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.connect(plainHello), r.connect(plainHello)
		r.up.answers(func(*upcall) (string, bool) { return "{}", true })
		a.ask("resources/subscribe", `{"uri":"file:///plan"}`)
		r.up.conn(0).end()
		end := a.request("resources/unsubscribe", `{"uri":"file:///plan"}`)
		if !end.pending() {
			t.Fatal("it does not wait")
		}
		has(t, b.ask("resources/subscribe", `{"uri":"file:///plan"}`), `"result"`)
		has(t, end.wait(), `"result"`)
		equal(t, "ended", r.up.count("resources/unsubscribe file:///plan"), 0)
	}, sharing(false), delayed)
}

// Over HTTP the upstream may do last what was sent first: a subscription that came
// before the answer to the end of another's is made again.
func TestSubscribeWhileASubscriptionEnds(t *testing.T) {
	const subscribe, unsubscribe = "resources/subscribe", "resources/unsubscribe"
	ends := func(f func(r *rig, a *client) (end func())) {
		bubble(t, review, func(r *rig) {
			a, b := r.connect(plainHello), r.connect(plainHello)
			r.up.answers(func(k *upcall) (string, bool) { return "{}", k.m.Method == subscribe })
			a.ask(subscribe, `{"uri":"file:///plan"}`)
			end := f(r, a)
			k := r.up.next()
			equal(t, "ends", k.what(), unsubscribe+" file:///plan")
			b.ask(subscribe, `{"uri":"file:///plan"}`)
			equal(t, "before the end", r.up.count(subscribe+" file:///plan"), 2)
			k.result("{}")
			end()
			synctest.Wait()
			equal(t, "made again", r.up.count(subscribe+" file:///plan"), 3)
		}, sharing(true))
	}
	ends(func(r *rig, a *client) func() {
		reply := a.request(unsubscribe, `{"uri":"file:///plan"}`)
		return func() { reply.wait() }
	})
	ends(func(r *rig, a *client) func() {
		a.s.Close()
		return func() {}
	})
}

// A session that ends takes its subscriptions along, in the upstream's own era.
func TestSubscriptionsOfASessionThatEnds(t *testing.T) {
	bubble(t, both, func(r *rig) {
		a, b := r.connect(plainHello), r.connect(plainHello)
		a.ask("resources/subscribe", `{"uri":"file:///plan"}`)
		b.ask("resources/subscribe", `{"uri":"file:///diff"}`)
		a.s.Close()
		synctest.Wait()
		equal(t, "told", r.up.reached(), []string{"listen file:///plan", "listen file:///diff file:///plan", "listen file:///diff"})
	}, sharing(false), modernUpstream)
}

// A subscription that is about to be refused is not made again with those that are.
func TestAttackSubscribeWhileASubscriptionEnds(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c, hidden := r.connect(plainHello), `{"uri":"file:///other"}`
		r.up.conn(0).drop(wire.Resources)
		r.up.conn(0).slow = time.Minute
		first := c.request("resources/subscribe", hidden)
		end := c.request("resources/unsubscribe", hidden)
		k := r.up.next()
		second := c.request("resources/subscribe", hidden)
		k.result("{}")
		end.wait()
		has(t, first.wait(), `"error"`)
		has(t, second.wait(), `"error"`)
		equal(t, "reached the server", r.up.count("resources/subscribe file:///other"), 0)
	})
}

// A subscription that was called off before the upstream was asked for it is none.
func TestSubscribeCancelledBeforeItIsSent(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		r.up.answers(func(*upcall) (string, bool) { return "{}", true })
		r.up.conn(0).end()
		first := c.request("resources/subscribe", `{"uri":"file:///plan"}`)
		if !first.pending() {
			t.Fatal("it does not wait")
		}
		c.cancel(first)
		first.wait()
		r.up.conn(1).says(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///plan"}}`, nil)
		r.up.conn(1).end()
		c.ask("logging/setLevel", `{"level":"info"}`)
		equal(t, "told", len(c.own.messages()), 0)
		equal(t, "asked for", r.up.count("resources/subscribe file:///plan"), 0)
	}, delayed)
}

// slowStream takes its time for the first message.
type slowStream struct {
	*stream
	begun atomic.Bool
}

func (s *slowStream) Send(msg []byte) bool {
	if !s.begun.Swap(true) {
		<-time.After(time.Second) // of the bubble's own time
	}
	return s.stream.Send(msg)
}

// The acknowledgement is the first message of a stream, and what comes to pass while
// it is on its way comes after it (2026-07-28, basic/patterns/subscriptions).
func TestAcknowledgementComesFirst(t *testing.T) {
	bubble(t, both, func(r *rig) {
		c := r.modern()
		r.up.answers(func(*upcall) (string, bool) { return "{}", true })
		c.request("subscriptions/listen", streamOf("file:///plan")) // so that the upstream tells
		synctest.Wait()
		s := &slowStream{stream: c.stream("listen")}
		m := read(t, `{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":`+streamOf("file:///plan")+"}", wire.FromClient)
		go func() { c.s.Handle(m, s).Wait() }()
		synctest.Wait()
		r.up.conn(0).says(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///plan"}}`, nil)
		<-time.After(2 * time.Second)
		if sent := s.messages(); len(sent) != 2 || !strings.Contains(sent[0], "acknowledged") {
			t.Errorf("got %q", sent)
		}
	})
}
