package proxy_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

func sharing(streams bool) func(*proxy.Config, *server) {
	return with(func(c *proxy.Config) { c.Share, c.Streams = true, streams })
}

// TestSharedUpstreamHasOneConnection, as the proxy's own client, and each session
// has its own run.
func TestSharedUpstreamHasOneConnection(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.connect(ableHello), r.connect(plainHello)
		equal(t, "connections", len(r.up.conns), 1)
		equal(t, "greeted once", r.up.conn(0).notified(), []string{`{"jsonrpc":"2.0","method":"notifications/initialized"}`})
		if hello := r.up.asked[0]; !strings.Contains(hello, `"capabilities":{}`) || !strings.Contains(hello, `"clientInfo":{"name":"fsm-proxy"`) {
			t.Errorf("asked %s", hello)
		}
		equal(t, "versions", a.s.Version()+" "+b.s.Version(), "2025-11-25 2025-06-18")
		a.do("write_plan", ok)
		a.in("review")
		b.in("planning")
		a.s.Close()
		synctest.Wait()
		b.do("write_plan", ok)
		b.in("review")
	}, sharing(false))
	bubble(t, review, func(r *rig) {
		r.connect(plainHello)
		if hello := r.up.asked[0]; !strings.Contains(hello, `"capabilities":{"elicitation":{},"roots":{},"sampling":{}}`) {
			t.Errorf("asked %s", hello)
		}
	}, sharing(true))
}

// TestMessagesOfOneSessionNeverReachTheOther.
func TestMessagesOfOneSessionNeverReachTheOther(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.connect(ableHello), r.connect(ableHello)
		up := r.up.conn(0)
		ra, rb := a.call("read_file"), b.call("read_file")
		ka, kb := r.up.next(), r.up.next()
		if ka.tag == kb.tag {
			t.Fatal("one tag for two calls")
		}
		log := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"of a"}}`
		up.says(log, ka)
		up.says(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`, kb)
		up.says(log, nil)
		up.says(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`, nil)
		up.says(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`, ka)
		equal(t, "a", ra.messages(), []string{log, `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}`})
		equal(t, "b", rb.messages(), []string{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`})
		equal(t, "own", len(a.own.messages())+len(b.own.messages()), 0)
		told := len(up.notified())
		b.handle(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`, b.own) // not b's to answer
		equal(t, "answered by b", len(up.notified()), told)
		b.cancel(&reply{id: ra.id})
		equal(t, "cancelled by b", len(ka.cancelled()), 0)
		equal(t, "b's own", len(kb.cancelled()), 1)
		a.handle(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`, a.own)
		equal(t, "answered by a", up.notified()[told:], []string{`{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}`})
		ka.result(ok)
		kb.result(ok)
		ra.wait()
		rb.wait()
	}, sharing(true))
}

// TestUntaggedRequestsOfASharedUpstreamAreRefused: nobody knows whose they are.
func TestUntaggedRequestsOfASharedUpstreamAreRefused(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a := r.connect(ableHello)
		reply := a.call("write_plan")
		k := r.up.next()
		up := r.up.conn(0)
		up.says(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}`, nil)
		if told := up.notified(); len(told) != 2 || !strings.Contains(told[1], `"id":"q","error":{"code":-32601`) {
			t.Errorf("got %s", told)
		}
		equal(t, "asked", len(a.own.messages())+len(reply.messages()), 0)
		k.result(ok)
		reply.wait()
	}, sharing(false))
}

// TestSharedSubscriptionsAreCounted: the last one that leaves ends it.
func TestSharedSubscriptionsAreCounted(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.connect(plainHello), r.connect(plainHello)
		r.up.auto = func(*upcall) (string, bool) { return `{}`, true }
		for _, c := range []*client{a, b} {
			c.ask("resources/subscribe", `{"uri":"file:///plan"}`)
		}
		update := func() {
			r.up.conn(0).says(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///plan"}}`, nil)
		}
		update()
		equal(t, "told", []int{len(a.own.messages()), len(b.own.messages())}, []int{1, 1})
		a.ask("resources/unsubscribe", `{"uri":"file:///plan"}`)
		a.ask("resources/unsubscribe", `{"uri":"file:///plan"}`) // b's is not a's to end
		equal(t, "ended upstream", r.up.count("resources/unsubscribe file:///plan"), 0)
		update()
		equal(t, "told", []int{len(a.own.messages()), len(b.own.messages())}, []int{1, 2})
		b.s.Close()
		synctest.Wait()
		equal(t, "ended upstream", r.up.count("resources/unsubscribe file:///plan"), 1)
	}, sharing(false))
}

// TestSharedUpstreamsDeath keeps all runs, whatever is to be done to the run of a
// session whose own upstream dies.
func TestSharedUpstreamsDeath(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.connect(plainHello), r.connect(plainHello)
		a.do("write_plan", ok)
		r.up.conn(0).end()
		b.do("read_file", ok)
		a.in("review")
		equal(t, "connections", r.up.dialled(), 2)
	}, sharing(true), with(func(c *proxy.Config) { c.RestartRun = true }))
}

// TestSharedLogLevel is the most verbose that any session wants, and each gets
// what it asked for.
func TestSharedLogLevel(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.connect(plainHello), r.connect(plainHello)
		reply := a.request("logging/setLevel", `{"level":"debug"}`)
		r.up.next().result(`{}`)
		reply.wait()
		equal(t, "less is not asked for", b.ask("logging/setLevel", `{"level":"error"}`), `{"jsonrpc":"2.0","id":5,"result":{}}`)
		ra, rb := a.call("read_file"), b.call("read_file")
		ka, kb := r.up.next(), r.up.next()
		for _, k := range []*upcall{ka, kb} {
			r.up.conn(0).says(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`, k)
			k.result(ok)
		}
		equal(t, "heard", []int{len(ra.messages()), len(rb.messages())}, []int{1, 0})
	}, sharing(true))
}

// TestSharedListChangedReachesAll whose view has changed.
func TestSharedListChangedReachesAll(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.connect(plainHello), r.connect(plainHello)
		b.do("write_plan", ok) // sees status and ask
		r.up.names(wire.Tools, "status", "read_file", "list_q", "secret", "write_plan", "ask")
		r.up.conn(0).says(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, nil)
		synctest.Wait()
		equal(t, "told", []int{len(a.own.messages()), len(b.own.messages())}, []int{1, 0})
		a.refused(a.call("read_filee").wait(), policy.UnknownAction)
	}, sharing(false))
}

// TestSharedNewsOnACallsStreamReachesAll: an upstream may tell of it on the stream
// of the call that it comes of.
func TestSharedNewsOnACallsStreamReachesAll(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.connect(plainHello), r.connect(plainHello)
		for _, c := range []*client{a, b} {
			reply := c.request("resources/subscribe", `{"uri":"file:///plan"}`)
			r.up.next().result(`{}`)
			reply.wait()
		}
		reply := a.call("read_file")
		k := r.up.next()
		r.up.names(wire.Tools, "status", "read_file", "list_q")
		r.up.conn(0).says(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, k)
		r.up.conn(0).says(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///plan"}}`, k)
		synctest.Wait()
		equal(t, "b is told", len(b.own.messages()), 2)
		k.result(ok)
		reply.wait()
		equal(t, "a is told", len(a.own.messages())+len(reply.messages()), 2)
	}, sharing(true))
}
