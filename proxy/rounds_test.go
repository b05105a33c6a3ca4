package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/operator"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

const asksOnce = `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}`

// round begins a call for which the upstream asks its client, and returns how the client answers.
func (c *client) round(tool string) (call *reply, accept func()) {
	c.t.Helper()
	call = c.call(tool)
	c.up.next().result(asksOnce)
	synctest.Wait()
	return call, c.accepting(call)
}

// accepting answers what the call's client was asked last.
func (c *client) accepting(call *reply) func() {
	c.t.Helper()
	var asked string
	for _, m := range call.messages() {
		if strings.Contains(m, `"method":"elicitation/create"`) {
			asked = idOf(m)
		}
	}
	if asked == "" {
		c.t.Error("the client is not asked")
	}
	return func() {
		c.handle(`{"jsonrpc":"2.0","id":`+asked+`,"result":{"action":"accept"}}`, c.own)
		synctest.Wait()
	}
}

// A run that began anew while the client was asked knows nothing of the call: it is decided like one of the new run.
func TestRoundOfARunThatBeganAnew(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.openFor(observe.Peer{Principal: ann}).greet(ableHello)
		c.do("write_plan", ok)
		call, accept := c.round("ask")
		if _, err := r.p.Operators().Reset(operator.Verb{Run: r.only().Name}); err != nil {
			t.Fatal("no run")
		}
		accept()
		c.refused(call.wait(), policy.InvalidTransition)
		equal(t, "sent", r.up.count("tools/call ask"), 1)
		c.do("write_plan", ok)
		call, accept = c.round("ask")
		accept()
		r.up.next().result(ok)
		call.wait()
		c.in("applying")
	}, modernUpstream, keys(runs.Principal))
}

// A call that began under another mode is decided by the one that there is now.
func TestRoundThroughAChangeOfMode(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		call, accept := c.round("write_plan")
		r.p.SetMode(runs.Shadow)
		accept()
		r.up.next().result(ok)
		call.wait()
		r.p.SetMode(runs.Enforce)
		c.in("review")
		r.p.SetMode(runs.Shadow)
		call, accept = c.round("apply")
		r.p.SetMode(runs.Enforce)
		accept()
		c.refused(call.wait(), policy.InvalidTransition)
		equal(t, "sent", r.up.count("tools/call apply"), 1)
	}, modernUpstream)
}

// The upstream may ask 64 times, and what it takes for all of them together is the time of one call. What its client takes
// is not counted.
func TestRoundsAreBounded(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		call := c.call("write_plan")
		for range 65 {
			r.up.next().result(`{"resultType":"input_required","requestState":"on and on"}`)
			synctest.Wait()
		}
		has(t, c.refused(call.wait(), policy.UpstreamUnavailable).Message, "too many times")
		equal(t, "sent", r.up.count("tools/call write_plan"), 65)
		call = c.call("write_plan")
		for range 2 {
			k := r.up.next()
			time.Sleep(2 * time.Minute)
			k.result(asksOnce)
			synctest.Wait()
			time.Sleep(9 * time.Minute)
			c.accepting(call)()
		}
		last := r.up.next()
		time.Sleep(61 * time.Second)
		synctest.Wait()
		equal(t, "cancelled", len(last.cancelled()), 1)
		c.refused(call.wait(), policy.OutcomeUnknown)
		c.do("write_plan", ok) // the turn is free
	}, modernUpstream)
}

// What clients answer is kept until the call is sent again: 4 MiB of it, and of two questions by one name neither is asked.
func TestRoundsAnswersAreBounded(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		call := c.call("write_plan")
		r.up.next().result(`{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"},"b":{"method":"roots/list"}}}`)
		synctest.Wait()
		large := strings.Repeat("x", 3<<20)
		for _, asked := range call.messages()[:2] {
			c.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":%q}}`, idOf(asked), large), c.own)
		}
		has(t, c.refused(call.wait(), policy.UpstreamUnavailable).Message, "4 MiB")
		call = c.call("write_plan")
		r.up.next().result(`{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"},"a":{"method":"elicitation/create"}}}`)
		c.refused(call.wait(), policy.UpstreamUnavailable)
		equal(t, "sent", r.up.count("tools/call write_plan"), 2)
		c.do("write_plan", ok)
	}, modernUpstream)
}

// The connection that asked is the one that gets the answer: if it is lost meanwhile, the call is not sent again.
func TestRoundOfALostConnection(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		for _, tool := range []string{"write_plan", "status"} {
			call, accept := c.round(tool)
			r.up.conn(r.up.dialled() - 1).fade()
			c.do("read_file", ok) // over a new one
			accept()
			c.refused(call.wait(), policy.UpstreamUnavailable)
			equal(t, "sent", r.up.count("tools/call "+tool), 1)
		}
		c.do("write_plan", ok)
	}, modernUpstream)
}

// The list that a decision hangs on is read again where it has changed meanwhile.
func TestRoundOfAToolThatIsListedNoMore(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		call, accept := c.round("list_a")
		r.up.names(wire.Tools, "status")
		r.up.conn(0).drop(wire.Tools)
		accept()
		c.refused(call.wait(), policy.UnknownAction)
		equal(t, "sent", r.up.count("tools/call list_a"), 1)
	}, modernUpstream)
	bubble(t, strings.Replace(review, `"list_*": ,`, `"list_*": review,`, 1), func(r *rig) {
		c := r.connect(ableHello)
		call, accept := c.round("list_a")
		r.up.names(wire.Tools, "status", "write_plan")
		r.up.conn(0).drop(wire.Tools)
		accept()
		c.refused(call.wait(), policy.UnknownAction)
		equal(t, "sent", r.up.count("tools/call list_a"), 1)
		c.do("write_plan", ok)
		c.in("review")
	}, modernUpstream)
}

// A call that is cancelled while it waits for the turn again is not sent again.
func TestRoundCancelledInTheQueue(t *testing.T) {
	bubble(t, strings.Replace(review, "tools: {ask: {on_success: applying, on_error: planning}}", "tools: {ask: {on_success: applying}, read_file: {on_success: applying}}", 1), func(r *rig) {
		c := r.connect(ableHello)
		call, accept := c.round("read_file")
		c.do("write_plan", ok)
		holder := c.call("ask")
		k := r.up.next()
		accept()
		c.cancel(call)
		synctest.Wait()
		equal(t, "answer", call.wait(), "")
		k.result(ok)
		holder.wait()
		equal(t, "sent", r.up.count("tools/call read_file"), 1)
		c.in("applying")
	}, modernUpstream)
}

// What a client never answers is answered with an error in its place, the client is told so, and the time of the call runs
// on. One that answers nothing by coming back again and again gains no time by it.
func TestClientNeverAnswers(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		call := c.call("write_plan")
		k := r.up.next()
		time.Sleep(time.Minute)
		k.conn.says(elicit, k)
		k.conn.says(`{"jsonrpc":"2.0","id":"nobody's","method":"roots/list"}`, nil)
		time.Sleep(10*time.Minute - time.Second)
		c.refused(c.call("write_plan").wait(), policy.Busy)
		equal(t, "told", len(k.conn.notified()), 1) // initialized
		time.Sleep(2 * time.Second)
		synctest.Wait()
		told := strings.Join(k.conn.notified(), "")
		has(t, told, `"id":7,"error":{"code":-32603,"message":"the client did not answer in time"`, `"id":"nobody's","error"`)
		has(t, strings.Join(call.messages(), ""), `"notifications/cancelled","params":{"requestId":1,"reason":"the client did not answer in time"}`)
		c.accepting(call)() // too late
		equal(t, "told", len(k.conn.notified()), 3)
		time.Sleep(4 * time.Minute)
		c.refused(call.wait(), policy.OutcomeUnknown)
		c.do("write_plan", ok)
	})
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		call, _ := c.round("write_plan")
		time.Sleep(10*time.Minute + time.Second)
		has(t, c.refused(call.wait(), policy.UpstreamUnavailable).Message, "did not answer in time")
		c.do("write_plan", ok)
	}, modernUpstream)
	bubble(t, review, func(r *rig) {
		c := r.modern()
		k, answer := r.elicited(c, "write_plan")
		keys, state := required(t, answer)
		for range 4 {
			time.Sleep(3 * time.Minute)
			back := c.comeBack("write_plan", "other", state, `{}`)
			synctest.Wait()
			if back.pending() {
				break
			}
			keys, state = required(t, back.wait())
		}
		equal(t, "asked", len(keys), 1)
		has(t, strings.Join(k.conn.notified(), ""), `"id":7,"error"`)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		has(t, r.modernCall(c, "write_plan", ok), "State is now 'review'")
	})
}

// Of what an answer asks for the client is asked all, or nothing: the rest would be asked for a
// call that is over.
func TestNothingIsAskedOfARefusedRound(t *testing.T) {
	for _, inputs := range []string{
		`{"a":{"method":"nonsense/ask"},"b":{"method":"elicitation/create","params":{}}}`,
		`{"b":{"method":"elicitation/create","params":{}},"c":{"method":"nonsense/ask"}}`,
	} {
		bubble(t, review, func(r *rig) {
			c := r.connect(ableHello)
			call := c.call("write_plan")
			r.up.next().result(`{"resultType":"input_required","inputRequests":` + inputs + `}`)
			c.refused(call.wait(), policy.UpstreamUnavailable)
			if told := strings.Join(append(call.messages(), c.own.messages()...), "\n"); strings.Contains(told, "elicitation/create") {
				t.Errorf("the client is asked for a call that is over: %s", told)
			}
		}, modernUpstream)
	}
}
