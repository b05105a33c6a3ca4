package proxy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// TestUpstreamAsksTheClient: requests go to the client under an id of the
// session's, on the stream of their call, and the answers back under the
// upstream's own, both in the bytes they came in.
func TestUpstreamAsksTheClient(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		up := r.up.conn(0)
		reply := c.call("read_file")
		k := r.up.next()
		up.says(`{"jsonrpc":"2.0", "id":"s-1","method":"sampling/createMessage","params":{"n":1e400,"_meta":{"progressToken":"p"}}}`, k)
		up.says(`{"jsonrpc":"2.0","id":7,"method":"roots/list"}`, nil) // says not for which: the only one under way
		equal(t, "asked", reply.messages(), []string{
			`{"jsonrpc":"2.0", "id":1,"method":"sampling/createMessage","params":{"n":1e400,"_meta":{"progressToken":"p"}}}`,
			`{"jsonrpc":"2.0","id":2,"method":"roots/list"}`})
		c.notify("notifications/progress", `{"progressToken":"p","progress":1}`)
		c.notify("notifications/progress", `{"progressToken":"other","progress":1}`)
		c.handle(`{"jsonrpc":"2.0","id":2,"result":{ "roots":[] }}`, c.own)
		c.handle(`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}`, c.own)
		c.handle(`{"jsonrpc":"2.0","id":1,"result":{}}`, c.own)   // again
		c.handle(`{"jsonrpc":"2.0","id":"2","result":{}}`, c.own) // of another kind
		c.handle(`{"jsonrpc":"2.0","id":99,"result":{}}`, c.own)  // to nothing
		equal(t, "answered", up.notified()[1:], []string{
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`,
			`{"jsonrpc":"2.0","id":7,"result":{ "roots":[] }}`,
			`{"jsonrpc":"2.0","id":"s-1","error":{"code":-1,"message":"no"}}`})
		k.result(ok)
		reply.wait()
		up.says(`{"jsonrpc":"2.0","id":8,"method":"roots/list"}`, nil)
		equal(t, "with no call", len(c.own.messages()), 1)
	})
}

// TestUpstreamMay: what the policy or the client does not allow is answered
// -32601, and so is what nobody knows.
func TestUpstreamMay(t *testing.T) {
	ask := func(hello, more, method string) (asked int, answer string) {
		bubble(t, review+more, func(r *rig) {
			c := r.connect(hello)
			up := r.up.conn(0)
			up.says(`{"jsonrpc":"2.0","id":5,"method":"`+method+`"}`, nil)
			asked, answer = len(c.own.messages()), strings.Join(up.notified()[1:], "")
		})
		return asked, answer
	}
	for _, tt := range []struct {
		hello, policy, method string
		asked                 bool
	}{
		{ableHello, "", "sampling/createMessage", true},
		{ableHello, "", "elicitation/create", true},
		{ableHello, "", "roots/list", true},
		{plainHello, "", "roots/list", false},
		{ableHello, "upstream_may: [elicitation]\n", "sampling/createMessage", false},
		{ableHello, "upstream_may: [elicitation]\n", "elicitation/create", true},
		{ableHello, "upstream_may: []\n", "roots/list", false},
		{ableHello, "", "tools/call", false},
		{ableHello, "", "vendor/ask", false},
		{ableHello, "passthrough: [vendor/ask]\n", "vendor/ask", true},
	} {
		asked, answer := ask(tt.hello, tt.policy, tt.method)
		if (asked == 1) != tt.asked || (answer == "") != tt.asked {
			t.Errorf("%q %s: asked %d times, answered %s", tt.policy, tt.method, asked, answer)
		}
		if !tt.asked && !strings.HasPrefix(answer, `{"jsonrpc":"2.0","id":5,"error":{"code":-32601,`) {
			t.Errorf("%q %s: answered %s", tt.policy, tt.method, answer)
		}
	}
}

// TestUpstreamWithdrawsItsRequest: the client is told under the id that it knows,
// the clock runs on, and a late answer goes nowhere.
func TestUpstreamWithdrawsItsRequest(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		up := r.up.conn(0)
		reply := c.call("read_file")
		k := r.up.next()
		up.says(`{"jsonrpc":"2.0","id":"x","method":"elicitation/create","params":{}}`, k)
		up.says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"y"}}`, nil)
		up.says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{ "requestId":"x","reason":"late"}}`, nil)
		equal(t, "told", reply.messages()[1:], []string{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{ "requestId":1,"reason":"late"}}`})
		c.handle(`{"jsonrpc":"2.0","id":1,"result":{}}`, c.own)
		equal(t, "answered", len(up.notified()), 1)
		reply.wait() // in five minutes: the clock is not held any more
	})
}

// TestRequestsOfALostUpstream are taken back from the client.
func TestRequestsOfALostUpstream(t *testing.T) {
	for _, share := range []bool{false, true} {
		bubble(t, review, func(r *rig) {
			r.connect(plainHello)
			c := r.connect(ableHello) // not the one for which the connection was made
			up := r.up.conn(len(r.up.conns) - 1)
			reply := c.call("write_plan")
			up.says(`{"jsonrpc":"2.0","id":"x","method":"elicitation/create","params":{}}`, r.up.next())
			up.end()
			synctest.Wait()
			all := append(reply.messages(), c.own.messages()...)
			if len(all) != 2 || !strings.Contains(all[1], `"notifications/cancelled","params":{"requestId":1,`) {
				t.Errorf("share %v: told %s", share, all)
			}
			c.do("write_plan", ok) // nothing is held
			c.in("review")
		}, with(func(c *proxy.Config) { c.Share, c.Streams = share, true }))
	}
}

// TestAskBelongsToACallThatWasSent, and not to one that waits for its turn.
func TestAskBelongsToACallThatWasSent(t *testing.T) {
	bubble(t, exclusive, func(r *rig) {
		c := r.connect(ableHello)
		holder, queued := c.call("switch"), c.call("switch")
		reading := c.call("read_file")
		kh, kr := r.up.next(), r.up.next()
		kh.fail(-32601)
		holder.wait()
		synctest.Wait()
		r.up.conn(0).says(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`, nil)
		equal(t, "of the holder of the turn", len(queued.messages()), 1)
		r.up.next().result(ok)
		queued.wait()
		r.up.conn(0).says(`{"jsonrpc":"2.0","id":2,"method":"roots/list"}`, nil)
		equal(t, "of the only one left", len(reading.messages()), 1)
		kr.result(ok)
	})
}

// TestAskBelongsToNoCallThatOnlyPrepares: one that waits for a list is at the
// upstream no more than one in the queue.
func TestAskBelongsToNoCallThatOnlyPrepares(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		up := r.up.conn(0)
		up.drop(wire.Tools)
		up.slow = time.Minute
		preparing, reading := c.call("list_a"), c.call("read_file")
		k := r.up.next()
		up.says(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`, nil)
		equal(t, "asked", []int{len(preparing.messages()), len(reading.messages())}, []int{0, 1})
		k.result(ok)
		reading.wait()
		r.up.next().result(ok)
		preparing.wait()
	})
}

// TestRelayedRequestThatIsLost is an error, and steps nothing; a cancelled one
// has no answer.
func TestRelayedRequestThatIsLost(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		reply := c.request("logging/setLevel", `{"level":"info"}`)
		r.up.next().lose(lost(true, 502))
		if answer := reply.wait(); !strings.Contains(answer, "-32603") || !strings.Contains(answer, "502") {
			t.Errorf("got %s", answer)
		}
		reply = c.request("logging/setLevel", `{"level":"info"}`)
		r.up.next()
		c.cancel(reply)
		equal(t, "answer", reply.wait(), "")
		reply = c.request("logging/setLevel", `{"level":"info"}`)
		r.up.next()
		if answer := reply.wait(); !strings.Contains(answer, "-32603") { // in five minutes
			t.Errorf("got %s", answer)
		}
		c.in("planning")
	})
}

// TestRestartLeavesTheOldRunBehind: what was under way in it changes nothing, and
// gives the turn back.
func TestRestartLeavesTheOldRunBehind(t *testing.T) {
	const source = "version: 1\ninitial: a\nstates:\n  a: {tools: {act: b}}\n  b: {tools: {act: c}}\n  c: {tools: {act: }}\n"
	bubble(t, source, func(r *rig) {
		c := r.connect(plainHello)
		c.do("act", ok)
		old := c.call("act")
		k := r.up.next()
		r.up.conn(0).fade()
		c.in("a")
		k.result(ok)
		old.wait()
		c.in("a")
		c.do("act", ok)
		c.in("b")
	}, with(func(c *proxy.Config) { c.RestartRun = true }))
}

// TestProgressAndLogs reach the stream of their call, else the session's own.
func TestProgressAndLogs(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		up := r.up.conn(0)
		reply := c.request("tools/call", `{"name":"read_file","_meta":{"progressToken":"mine"}}`)
		k := r.up.next()
		progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"mine","progress":0.1e400}}`
		log := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{ "a":1 }}}`
		up.says(progress, k)
		up.says(log, k)
		up.says(log, nil)
		up.says(`{"jsonrpc":"2.0","method":"vendor/event"}`, k)
		equal(t, "on the call's stream", reply.messages(), []string{progress, log})
		equal(t, "on its own", c.own.messages(), []string{log})
		k.result(ok)
		reply.wait()
	})
}

// TestPassthrough carries what the policy names, both ways, and nothing more.
func TestPassthrough(t *testing.T) {
	bubble(t, review+"passthrough: [vendor/do, notifications/vendor, vendor/event]\n", func(r *rig) {
		c := r.connect(plainHello)
		up := r.up.conn(0)
		reply := c.request("vendor/do", `{"name":"apply","x":1e400}`)
		k := r.up.next()
		equal(t, "sent", string(k.m.Bytes(k.m.Params)), `{"name":"apply","x":1e400}`)
		k.fail(-32000)
		equal(t, "answered", strings.Contains(reply.wait(), "-32000"), true)
		c.notify("notifications/vendor", `{"a":1}`)
		c.notify("notifications/other", `{"a":1}`)
		equal(t, "told", up.notified()[1:], []string{`{"jsonrpc":"2.0","method":"notifications/vendor","params":{"a":1}}`})
		up.says(`{"jsonrpc":"2.0","method":"vendor/event"}`, nil)
		up.says(`{"jsonrpc":"2.0","method":"vendor/other"}`, nil)
		equal(t, "heard", len(c.own.messages()), 1)
		if answer := c.ask("vendor/else", ""); !strings.Contains(answer, "-32601") {
			t.Errorf("got %s", answer)
		}
	})
}

// TestUpstreamsDeath: what was under way is unknown, and stays so; the run goes
// on; level and subscriptions are made up for on the next connection.
func TestUpstreamsDeath(t *testing.T) {
	for _, restart := range []bool{false, true} {
		bubble(t, review, func(r *rig) {
			c := r.connect(plainHello)
			for _, rq := range [][2]string{{"logging/setLevel", `{"level":"debug"}`}, {"resources/subscribe", `{"uri":"file:///plan"}`}} {
				reply := c.request(rq[0], rq[1])
				r.up.next().result(`{}`)
				reply.wait()
			}
			c.do("write_plan", ok)
			asked := c.call("ask")
			r.up.next()
			r.up.conn(0).end()
			answer := asked.wait()
			refusal := refusalOf(t, answer)
			equal(t, "refused", refusal.Error+" "+refusal.State, "outcome_unknown planning") // as on_error
			before := len(c.log.all())
			c.listed(wire.Tools)
			again := []string{r.up.next().what(), r.up.next().what()}
			equal(t, "made up for", again, []string{"logging/setLevel", "resources/subscribe file:///plan"})
			equal(t, "greeted", r.up.conn(1).notified(), []string{`{"jsonrpc":"2.0","method":"notifications/initialized"}`})
			equal(t, "asked the same", r.up.asked[1], r.up.asked[0])
			equal(t, "told", c.log.all()[before:], []string{fmt.Sprintf("%d answer", c.last)})
			c.do("write_plan", ok)
			r.up.conn(1).end()
			if restart {
				c.in("planning")
			} else {
				c.in("review")
			}
		}, with(func(c *proxy.Config) { c.RestartRun = restart }))
	}
}

// TestUpstreamThatComesBackDifferent: the client is told if its list is another.
func TestUpstreamThatComesBackDifferent(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		r.up.conn(0).end()
		r.up.names(wire.Tools, "status", "list_new")
		before := len(c.log.all())
		c.in("planning")
		synctest.Wait()
		told := c.log.all()[before:]
		slices.Sort(told)
		equal(t, "told", told, []string{fmt.Sprintf("%d answer", c.last), "own tools/list_changed"})
		equal(t, "listed", c.listed(wire.Tools), "status list_new")
	})
}

// TestDeathWithTheQueueFull: the holder is unknown, those who wait go on with a
// new connection.
func TestDeathWithTheQueueFull(t *testing.T) {
	bubble(t, fork, func(r *rig) {
		c := r.connect(plainHello)
		holder, queued := c.call("act"), c.call("act")
		r.up.next()
		synctest.Wait()
		r.up.conn(0).end()
		refusalOf(t, holder.wait())
		refusalOf(t, queued.wait())
		c.in("unsure")
		equal(t, "reached", r.up.count("tools/call act"), 1)
	})
	const again = "version: 1\ninitial: a\nstates:\n  a: {tools: {act: {on_success: b, on_unknown: stay}}}\n  b: {tools: {status: }}\n"
	bubble(t, again, func(r *rig) {
		c := r.connect(plainHello)
		holder, queued := c.call("act"), c.call("act")
		r.up.next()
		synctest.Wait()
		r.up.conn(0).end()
		refusalOf(t, holder.wait())
		k := r.up.next()
		equal(t, "on the new connection", k.conn == r.up.conn(1), true)
		k.result(ok)
		queued.wait()
		c.in("b")
	})
}

// TestDialIsTriedAgain for as long as it makes sense, and given up with a reason.
// The log says once that the proxy waits.
func TestDialIsTriedAgain(t *testing.T) {
	var log strings.Builder
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		r.up.conn(0).end()
		tries := len(r.up.asked)
		r.up.refuse = &wire.CallError{Err: errors.New("still starting"), RetryAfter: 8e9}
		refusal := refusalOf(t, c.call("read_file").wait())
		equal(t, "tries", len(r.up.asked)-tries, 4) // at 0, 8, 16 and 24 of 30 seconds
		if !strings.Contains(refusal.Message, "still starting") {
			t.Errorf("got %s", refusal.Message)
		}
		equal(t, "told", strings.Count(log.String(), "trying again"), 1)
	}, func(cfg *proxy.Config, _ *server) { cfg.Log = hclog.New(&hclog.LoggerOptions{Output: &log}) })
}
