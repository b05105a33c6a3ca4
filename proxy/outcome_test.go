package proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/drain"
)

// fork tells every outcome apart by the state that it leads to.
const fork = `
version: 1
initial: start
states:
  start:
    tools: {act: {on_success: succeeded, on_error: erred, on_unknown: unsure}}
    resources: {"file:///plan": {on_success: succeeded, on_error: erred, on_unknown: unsure}}
    prompts: {plan: {on_success: succeeded, on_error: erred, on_unknown: unsure}}
  succeeded: {tools: {status: }}
  erred: {tools: {status: }}
  unsure: {tools: {status: }}
`

func lost(sent bool, status int) error {
	return &wire.CallError{Sent: sent, Status: status, Err: errors.New("cut off")}
}

// TestOutcomes has each line of the design's section on outcomes.
func TestOutcomes(t *testing.T) {
	type ending func(k *upcall)
	result := func(raw string) ending { return func(k *upcall) { k.result(raw) } }
	code := func(code int) ending { return func(k *upcall) { k.fail(code) } }
	loss := func(sent bool, status int) ending { return func(k *upcall) { k.lose(lost(sent, status)) } }
	tests := []struct {
		name  string
		end   ending
		state string
		code  policy.Code // of the refusal; none: the upstream's own answer
	}{
		{"result", result(ok), "succeeded", 0},
		{"isError false", result(`{"content":[],"isError":false}`), "succeeded", 0},
		{"isError is no boolean", result(`{"content":[],"isError":"true"}`), "erred", 0},
		{"empty result", result(`{}`), "succeeded", 0},
		{"isError true", result(failed), "erred", 0},
		{"internal error", code(-32603), "erred", 0},
		{"invalid params", code(-32602), "erred", 0},
		{"error of the server's own", code(7), "erred", 0},
		{"no such method", code(-32601), "start", 0},
		{"wants a URL visited", code(-32042), "start", 0},
		{"header mismatch", code(-32020), "start", 0},
		{"of the next era", code(-32021), "start", 0},
		{"unsupported version", code(-32022), "start", 0},
		{"isError null", result(`{"content":[],"isError":null}`), "succeeded", 0},
		{"input required, of the wrong era", result(`{"resultType":"input_required","inputRequests":{}}`), "unsure", policy.OutcomeUnknown},
		{"task handle, not asked for", result(`{"task":{"taskId":"1","status":"working"}}`), "unsure", policy.OutcomeUnknown},
		{"result is no object", result(`null`), "unsure", policy.OutcomeUnknown},
		{"lost connection", loss(true, 0), "unsure", policy.OutcomeUnknown},
		{"other error", func(k *upcall) { k.lose(errors.New("strange")) }, "unsure", policy.OutcomeUnknown},
		{"never sent", loss(false, 0), "start", policy.UpstreamUnavailable},
		{"202 to a request", loss(true, 202), "unsure", policy.OutcomeUnknown},
		{"redirect", loss(true, 302), "unsure", policy.OutcomeUnknown},
		{"500", loss(true, 500), "unsure", policy.OutcomeUnknown},
		{"502", loss(true, 502), "unsure", policy.OutcomeUnknown},
		{"503", loss(true, 503), "unsure", policy.OutcomeUnknown},
		{"409, named nowhere", loss(true, 409), "unsure", policy.OutcomeUnknown},
	}
	for _, status := range []int{400, 401, 403, 404, 405, 406, 413, 415, 429} {
		tests = append(tests, struct {
			name  string
			end   ending
			state string
			code  policy.Code
		}{fmt.Sprint(status), loss(true, status), "start", policy.UpstreamUnavailable})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, fork, func(r *rig) {
				c := r.connect(plainHello)
				reply := c.call("act")
				tt.end(r.up.next())
				answer := reply.wait()
				if tt.code != 0 {
					refusal := c.refused(answer, tt.code)
					equal(t, "its state", refusal.State, tt.state)
					if !strings.Contains(answer, `"isError":true`) || strings.Contains(answer, `"error":{`) {
						t.Errorf("a tools/call is answered with a result: %s", answer)
					}
				}
				c.in(tt.state)
				equal(t, "sent", r.up.count("tools/call act"), 1)
			})
		})
	}
}

// TestReadsAndPromptsAreSymbolsLikeTools, and what is unknown of them is an
// internal error.
func TestReadsAndPromptsAreSymbolsLikeTools(t *testing.T) {
	requests := map[string][2]string{"resources/read": {`{"uri":"file:///plan"}`, `{"contents":[]}`}, "prompts/get": {`{"name":"plan"}`, `{"messages":[]}`}}
	for method, rq := range requests {
		for state, end := range map[string]func(k *upcall){
			"succeeded": func(k *upcall) { k.result(rq[1]) },
			"erred":     func(k *upcall) { k.fail(-32002) },
			"unsure":    func(k *upcall) { k.lose(lost(true, 0)) },
		} {
			bubble(t, fork, func(r *rig) {
				c := r.connect(plainHello)
				reply := c.request(method, rq[0])
				end(r.up.next())
				answer := reply.wait()
				c.in(state)
				if state == "unsure" {
					c.refused(answer, policy.OutcomeUnknown)
					if !strings.Contains(answer, `"code":-32603`) {
						t.Errorf("got %s", answer)
					}
				}
			})
		}
	}
}

// TestTimeoutIsUnknown, cancels upstream, and says what may have happened.
func TestTimeoutIsUnknown(t *testing.T) {
	for _, detach := range []bool{true, false} {
		bubble(t, fork, func(r *rig) {
			r.up.detach = detach
			c := r.connect(plainHello)
			begin := time.Now()
			reply := c.call("act")
			k := r.up.next()
			answer := reply.wait()
			equal(t, "waited", time.Since(begin), 5*time.Minute)
			refusal := c.refused(answer, policy.OutcomeUnknown)
			if want := "Tool 'act' was sent, and no answer came in 5m; it may have happened. State is now 'unsure'. Allowed now: status."; !strings.HasPrefix(refusal.Message, want) {
				t.Errorf("got %q", refusal.Message)
			}
			equal(t, "cancelled upstream", len(k.cancelled()), 1)
			if k.result(ok) {
				t.Error("a late answer was taken")
			}
			c.in("unsure")
		})
	}
}

// TestLateAndDoubleAnswersChangeNothing.
func TestLateAndDoubleAnswersChangeNothing(t *testing.T) {
	bubble(t, fork, func(r *rig) {
		c := r.connect(plainHello)
		reply := c.call("act")
		k := r.up.next()
		k.result(failed)
		if k.result(ok) {
			t.Error("a second answer was taken")
		}
		reply.wait()
		synctest.Wait()
		equal(t, "answers", len(reply.answers), 1)
		c.in("erred")
	})
}

// TestCancelAfterTheSideEffect: what the upstream still answers within the grace
// decides; nothing is unknown.
func TestCancelAfterTheSideEffect(t *testing.T) {
	for _, detach := range []bool{true, false} {
		for state, answers := range map[string]func(k *upcall){
			"succeeded": func(k *upcall) { time.Sleep(4 * time.Second); k.result(ok) },
			"erred":     func(k *upcall) { k.fail(-32000) },
			"unsure":    func(*upcall) {},
		} {
			bubble(t, fork, func(r *rig) {
				r.up.detach = detach
				c := r.connect(plainHello)
				begin := time.Now()
				reply := c.call("act")
				k := r.up.next()
				c.cancel(reply)
				equal(t, "cancelled upstream", k.cancelled(), []string{fmt.Sprintf(`{"requestId":%d,"reason":"test"}`, reply.id)})
				answers(k)
				answer := reply.wait()
				if state == "unsure" {
					equal(t, "grace", time.Since(begin), 5*time.Second)
					equal(t, "answer", answer, "")
				}
				c.in(state)
			})
		}
	}
}

// TestCancelOfWhatIsNotThere does nothing: another's id, an answered one, none.
func TestCancelOfWhatIsNotThere(t *testing.T) {
	bubble(t, fork, func(r *rig) {
		c, other := r.connect(plainHello), r.connect(plainHello)
		reply := c.call("act")
		k := r.up.next()
		other.cancel(reply)
		c.notify("notifications/cancelled", `{"requestId":"5"}`)
		c.notify("notifications/cancelled", `{"requestId":999}`)
		c.notify("notifications/cancelled", `{}`)
		c.notify("notifications/cancelled", "")
		equal(t, "cancelled", len(k.cancelled()), 0)
		k.result(ok)
		reply.wait()
		c.cancel(reply)
		c.in("succeeded")
	})
}

// TestClockStandsStillWhileAPersonIsAsked: 45 seconds, and nine minutes.
func TestClockStandsStillWhileAPersonIsAsked(t *testing.T) {
	for _, thinks := range []time.Duration{45 * time.Second, 9 * time.Minute} {
		bubble(t, fork, func(r *rig) {
			c := r.connect(ableHello)
			reply := c.call("act")
			k := r.up.next()
			time.Sleep(4 * time.Minute)
			r.up.conn(0).says(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"sure?"}}`, nil)
			time.Sleep(thinks)
			if !reply.pending() {
				t.Fatalf("given up: %s", reply.wait())
			}
			c.handle(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`, c.own)
			equal(t, "answered upstream", r.up.conn(0).notified()[1:], []string{`{"jsonrpc":"2.0","id":"e","result":{"action":"accept"}}`})
			time.Sleep(59 * time.Second)
			if !reply.pending() {
				t.Fatalf("given up: %s", reply.wait())
			}
			if thinks == 9*time.Minute { // what is left runs on
				time.Sleep(2 * time.Second)
				c.refused(reply.wait(), policy.OutcomeUnknown)
				c.in("unsure")
				return
			}
			k.result(ok)
			reply.wait()
			c.in("succeeded")
		})
	}
}

// TestGivenUpBeforeItWasSent: what certainly has not happened is not unknown.
func TestGivenUpBeforeItWasSent(t *testing.T) {
	bubble(t, fork, func(r *rig) {
		c := r.connect(plainHello)
		r.up.detach, r.up.unsent = false, true
		answer := c.call("act").wait() // in five minutes
		has(t, c.refused(answer, policy.UpstreamUnavailable).Message, "no answer in time", "Nothing was done")
		c.in("start")
		cancelled := c.call("act")
		r.up.next()
		c.cancel(cancelled)
		equal(t, "answer", cancelled.wait(), "")
		c.in("start")
		brokenOff := c.call("act")
		r.drain(time.Second).want(t, drain.Drained{BrokenOff: 1}, time.Second)
		has(t, c.refused(brokenOff.wait(), policy.UpstreamUnavailable).Message, "had to end", "Nothing was done")
	})
}

// TestGraceBeforeAnybodyWaits: a call that is given up before its framing waits
// for it is given up all the same.
func TestGraceBeforeAnybodyWaits(t *testing.T) {
	bubble(t, fork, func(r *rig) {
		c := r.connect(plainHello)
		r.up.detach = false
		s := c.stream("late")
		rest := c.s.Handle(read(t, `{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"act"}}`, wire.FromClient), s)
		c.notify("notifications/cancelled", `{"requestId":99}`)
		time.Sleep(10 * time.Second)
		rest.Wait()
		equal(t, "answers", s.answers, []string{""})
		c.in("unsure")
	})
}

const completes = `
version: 1
initial: start
on_complete: %s
states:
  start: {tools: {act: {on_success: {to: done}, on_error: {to: start, terminal: true}}, read_file: , status: middle}}
  middle: {tools: {act: done}}
  done: {terminal: true}
`

// TestRestartBeginsANewRunInTheSameStep.
func TestRestartBeginsANewRunInTheSameStep(t *testing.T) {
	bubble(t, fmt.Sprintf(completes, "restart"), func(r *rig) {
		c := r.connect(plainHello)
		c.do("status", ok)
		c.in("middle")
		before := len(c.log.all())
		c.do("act", ok)
		c.in("start")
		equal(t, "told", c.log.all()[before], fmt.Sprintf("%d tools/list_changed", c.last-1))
		c.do("act", failed) // terminal by itself, in the same state: nothing to tell
		c.in("start")
		c.do("status", ok)
		c.in("middle")
	})
}

// TestStopOffersNothingAnyMore.
func TestStopOffersNothingAnyMore(t *testing.T) {
	bubble(t, fmt.Sprintf(completes, "stop"), func(r *rig) {
		c := r.connect(plainHello)
		reading := c.call("read_file")
		k := r.up.next()
		c.do("act", failed)
		k.result(ok) // of the run that is over: answered, and changes nothing
		reading.wait()
		equal(t, "listed", c.listed(wire.Tools), "")
		refusal := c.refused(c.call("act").wait(), policy.RunComplete)
		if !strings.Contains(refusal.Message, "new run begins") {
			t.Errorf("it does not say how to go on: %q", refusal.Message)
		}
		equal(t, "sent", r.up.count("tools/call act"), 1)
		again := r.connect(plainHello)
		again.in("start")
	})
}

// TestOnUnknownFallsBackToOnError where the policy says nothing else.
func TestOnUnknownFallsBackToOnError(t *testing.T) {
	const source = "version: 1\ninitial: a\nstates:\n  a: {tools: {act: {on_success: b, on_error: c}}}\n  b: {tools: {status: }}\n  c: {tools: {status: }}\n"
	bubble(t, source, func(r *rig) {
		c := r.connect(plainHello)
		reply := c.call("act")
		r.up.next().lose(lost(true, 502))
		reply.wait()
		c.in("c")
	})
}

// TestUnknownSteppingTheWaitersOn: after a timeout of the holder the queue is
// decided by where that led.
func TestUnknownStepsBeforeTheQueueGoesOn(t *testing.T) {
	bubble(t, fork, func(r *rig) {
		c := r.connect(plainHello)
		holder, queued := c.call("act"), c.call("act")
		c.refused(holder.wait(), policy.OutcomeUnknown)
		equal(t, "state found", c.refused(queued.wait(), policy.InvalidTransition).State, "unsure")
		equal(t, "sent", r.up.count("tools/call act"), 1)
	}, with(func(c *proxy.Config) { c.CallTimeout = time.Second }))
}

// TestOverdue: an upstream that has not answered in time is looked at, but for one
// that waits for a client itself.
func TestOverdue(t *testing.T) {
	var log bytes.Buffer
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		asking, silent := c.call("read_file"), c.call("read_file")
		k, late := r.up.next(), r.up.next()
		r.up.conn(0).says(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{}}`, k)
		c.refused(silent.wait(), policy.OutcomeUnknown)
		equal(t, "looked at while the client is asked", late.late(), 0)
		c.handle(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`, c.own)
		c.refused(asking.wait(), policy.OutcomeUnknown)
		equal(t, "looked at", k.late(), 1)
		answered := c.call("read_file")
		k = r.up.next()
		k.result(ok)
		answered.wait()
		equal(t, "looked at after an answer", k.late(), 0)
		has(t, log.String(), "its outcome is unknown", "tool=read_file", "no answer came in 5m (--call-timeout)")
	}, with(func(c *proxy.Config) { c.Log = hclog.New(&hclog.LoggerOptions{Output: &log}) }))
}
