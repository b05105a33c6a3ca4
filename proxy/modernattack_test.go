package proxy_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// What an upstream asks and does not wait for must not fill what can be asked.
func TestAsksOfEndedCallsAreForgotten(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		for range 5 {
			k, answer := r.elicited(c, "status")
			keys, state := required(t, answer)
			k.result(ok)
			synctest.Wait()
			has(t, strings.Join(k.conn.notified(), ""), `"id":7,"error"`)
			has(t, c.comeBack("status", keys[0], state, `{"action":"accept"}`).wait(), `"complete"`)
		}
	}, with(func(c *proxy.Config) { c.MaxInFlight = 3 }))
}

// A stdio upstream does not say for which call it asks: with several principals it
// is nobody's, nor from then on, for it may be late.
func TestAskThatCouldBeAnothersIsRejected(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.as(observe.Peer{Principal: ann}), r.as(observe.Peer{Principal: bob})
		first := a.request("tools/call", meta(`{"name":"write_plan"}`))
		k := r.up.next()
		second := b.request("tools/call", meta(`{"name":"status"}`))
		other := r.up.next()
		k.conn.says(elicit, nil)
		synctest.Wait()
		has(t, strings.Join(k.conn.notified(), ""), `"id":7,"error"`)
		other.result(ok)
		has(t, second.wait(), `"complete"`)
		k.conn.says(strings.Replace(elicit, `"id":7`, `"id":8`, 1), nil)
		synctest.Wait()
		has(t, strings.Join(k.conn.notified(), ""), `"id":8,"error"`)
		k.result(ok)
		has(t, first.wait(), `"complete"`)
	}, keys(runs.Process))
}

// The upstream may ask before the framing has let the call go on alone.
func TestAskBeforeDetach(t *testing.T) {
	for _, detach := range []bool{true, false} {
		bubble(t, review, func(r *rig) {
			c := r.modern()
			c.ask("tools/list", meta(""))
			raw := `{"jsonrpc":"2.0","id":77,"method":"tools/call","params":` + meta(`{"name":"status","arguments":{"n":12345678901234567890}}`) + "}"
			s, n := c.stream("77"), 0
			rest := c.s.Handle(read(t, raw, wire.FromClient), s)
			k := r.up.next()
			k.conn.says(elicit, k)
			if !rest.Detach(func() { n++ }) {
				go func() { rest.Wait(); n++ }()
			}
			synctest.Wait()
			equal(t, "told that the request has its answer", n, 1)
			keys, state := required(t, (&reply{stream: s}).wait())
			back := c.comeBack("status", keys[0], state, `{"action":"accept"}`)
			k.result(ok)
			has(t, back.wait(), `"complete"`)
			equal(t, "told in the end", n, 1)
		}, func(_ *proxy.Config, u *server) { u.detach = detach })
	}
}

// A client answers what it was asked while the proxy drains.
func TestClientComesBackDuringDrain(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		k, answer := r.elicited(c, "write_plan")
		keys, state := required(t, answer)
		r.p.Refuse()
		back := c.comeBack("write_plan", keys[0], state, `{"action":"accept"}`)
		synctest.Wait()
		has(t, strings.Join(k.conn.notified(), ""), `"id":7,"result":{"action":"accept"}`)
		k.result(ok)
		has(t, back.wait(), "State is now 'review'")
	})
}

// One that listens with all it has takes no room from others, nor from itself.
func TestListenersCrowdNobodyOut(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.as(observe.Peer{Principal: ann}), r.as(observe.Peer{Principal: bob})
		a.ask("tools/list", meta(""))
		for range 4 {
			a.request("subscriptions/listen", meta(`{"notifications":{"toolsListChanged":true}}`))
		}
		has(t, a.ask("subscriptions/listen", meta(`{"notifications":{}}`)), "too many requests")
		has(t, a.ask("tools/list", meta("")), "status")
		var calls []*reply
		for range 4 {
			calls = append(calls, a.request("tools/call", meta(`{"name":"status"}`)))
		}
		has(t, a.ask("tools/call", meta(`{"name":"status"}`)), "too many requests")
		has(t, b.ask("tools/list", meta("")), "status")
		for _, call := range calls {
			r.up.next().result(ok)
			call.wait()
		}
	}, keys(runs.Process), with(func(c *proxy.Config) { c.MaxInFlight = 4 }))
}

// In shadow a client of the modern era finds what the proxy has for it, and hears
// what it listens to.
func TestModernInShadow(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		has(t, c.ask("server/discover", meta("")), `"supportedVersions"`)
		l := c.request("subscriptions/listen", meta(`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///plan"]}}`))
		synctest.Wait()
		r.up.next().result(`{}`)
		conn := r.up.conn(0)
		conn.says(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, nil)
		conn.says(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///plan"}}`, nil)
		synctest.Wait()
		has(t, strings.Join(l.messages(), ""), "acknowledged", "tools/list_changed", "resources/updated")
	}, with(func(c *proxy.Config) { c.Mode = runs.Shadow }))
}

// A call that is cancelled while a modern upstream's questions are on their way is
// not asked for any more.
func TestCancelledWhileItsClientIsAsked(t *testing.T) {
	for range 100 {
		r := newRig(t, review, modernUpstream)
		c := r.connect(ableHello)
		call := c.call("status")
		k := r.up.next()
		go k.result(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create"},"b":{"method":"elicitation/create"}},"requestState":"s"}`)
		c.cancel(call)
		call.wait()
		r.p.Close()
	}
}

// What comes while the client is away goes not to a request that was answered.
func TestProgressWhileTheClientIsAway(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		call := c.request("tools/call", meta(`{"name":"status"}`))
		k := r.up.next()
		progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`
		k.conn.says(progress, k)
		k.conn.says(elicit, k)
		call.wait()
		k.conn.says(progress, k)
		equal(t, "progress", len(call.messages()), 1)
		k.result(ok)
	})
}

// An upstream is quick: what it asks can come before the call that it is for has been
// handed over.
func TestAskBeforeTheCallIsUnderWay(t *testing.T) {
	bubble(t, review, func(r *rig) {
		r.up.begun = func(k *upcall, _ outcome) {
			if k.m.Method == "tools/call" {
				k.conn.says(elicit, nil)
			}
		}
		c := r.modern()
		has(t, c.ask("tools/call", meta(`{"name":"status"}`)), "input_required")
	})
}
