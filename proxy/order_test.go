package proxy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
)

// TestTransitionThenNotificationThenAnswer is the promise of the design, on a
// pipe and where answers need a goroutine each.
func TestTransitionThenNotificationThenAnswer(t *testing.T) {
	for _, detach := range []bool{true, false} {
		bubble(t, review, func(r *rig) {
			r.up.detach = detach
			c := r.connect(plainHello)
			var seen []string
			s := c.stream("call")
			s.hook = func(raw string) { // what is told has happened: a list made now shows it
				seen = append(seen, short([]byte(raw))+": "+c.listed(wire.Tools))
			}
			c.last++
			reply := c.requestOn(s, "77", "tools/call", `{"name":"write_plan"}`)
			r.up.next().result(ok)
			reply.wait()
			equal(t, "told", seen, []string{"tools/list_changed: status ask", "resources/list_changed: status ask"})
			lines := slices.DeleteFunc(c.log.all(), func(s string) bool { return !strings.HasPrefix(s, "call ") })
			equal(t, "order", lines, []string{"call tools/list_changed", "call resources/list_changed", "call answer"})
		})
	}
}

// recorder is a Journal that tells a client's log when it is told.
type recorder struct {
	log  *journal
	then func() // called at each End
}

func (r *recorder) Begin(d observe.Decision) uint64 {
	r.log.add("begin " + d.Name)
	return 1
}

func (r *recorder) End(_ uint64, _ observe.Peer, op *observe.Operation) {
	r.log.add(strings.TrimSpace("end " + op.Name + " " + op.Outcome + " " + op.To + op.Fault.Code.String()))
	if r.then != nil {
		r.then()
	}
}

// TestRecordThenNotificationThenAnswer: what became of a call is recorded before its
// client learns of it, and before another call has its turn.
func TestRecordThenNotificationThenAnswer(t *testing.T) {
	j := &recorder{log: &journal{}}
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.do("status", ok)
		j.log = c.log
		before := len(c.log.all())
		first, second := c.call("write_plan"), c.call("write_plan")
		synctest.Wait()
		r.up.next().result(failed)
		first.wait()
		up := r.up.next()
		synctest.Wait()
		up.result(ok)
		second.wait()
		lines := c.log.all()[before:]
		equal(t, "recorded", slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return !strings.Contains(s, "write_plan") }),
			[]string{"begin write_plan", "end write_plan error", "begin write_plan", "end write_plan success review"})
		equal(t, "in the end", lines[len(lines)-4:], []string{"end write_plan success review", "7 tools/list_changed", "7 resources/list_changed", "7 answer"})
	}, with(func(c *proxy.Config) { c.Journal = j }))
}

// TestReloadBetweenRecordAndNotification: of what a reload changes while an outcome is recorded,
// the client is told by the reload, and not again by the call.
func TestReloadBetweenRecordAndNotification(t *testing.T) {
	j := &recorder{log: &journal{}}
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		before := len(c.log.all())
		j.then = func() {
			r.p.Reload(parse(t, strings.Replace(review, "\n    prompts: {plan: }\n  applying:", "\n  applying:", 1)))
			synctest.Wait() // until all that the reload tells is told
		}
		c.do("write_plan", ok)
		synctest.Wait()
		var prompts int
		for _, line := range c.log.all()[before:] {
			if strings.HasSuffix(line, "prompts/list_changed") {
				prompts++
			}
		}
		if prompts != 1 {
			t.Errorf("told %d times that the prompts changed: %q", prompts, c.log.all()[before:])
		}
	}, with(func(c *proxy.Config) { c.Journal = j }))
}

// TestLossIsRecordedWithItsReason: so is a call whose outcome nobody knows.
func TestLossIsRecordedWithItsReason(t *testing.T) {
	j := &recorder{log: &journal{}}
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		j.log = c.log
		before := len(c.log.all())
		reply := c.call("write_plan")
		r.up.next().lose(&wire.CallError{Sent: true, Err: errors.New("the connection was reset")})
		reply.wait()
		equal(t, "told", c.log.all()[before:], []string{"begin write_plan", "end write_plan unknown outcome_unknown", "5 answer"})
	}, with(func(c *proxy.Config) { c.Journal = j }))
}

// TestOnlyChangedListsAreNotified: the prompts are the same in both states, and
// a stay changes nothing.
func TestOnlyChangedListsAreNotified(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		before := len(c.log.all())
		c.do("read_file", ok)
		equal(t, "after a stay", c.log.all()[before:], []string{"5 answer"})
		c.do("write_plan", failed) // on_error stays
		equal(t, "after an error that stays", c.log.all()[before+1:], []string{"6 answer"})
		c.do("write_plan", ok)
		equal(t, "after the step", c.log.all()[before+2:], []string{"7 tools/list_changed", "7 resources/list_changed", "7 answer"})
	})
}

// TestBoundButUnlistedChangesNothing: the shown bytes count, not the bindings.
func TestBoundButUnlistedChangesNothing(t *testing.T) {
	bubble(t, review, func(r *rig) {
		r.up.names(wire.Tools, "status", "write_plan")
		r.up.names(wire.Resources, "file:///plan")
		c := r.connect(plainHello)
		before := len(c.log.all())
		c.do("write_plan", ok)
		equal(t, "told", c.log.all()[before:], []string{"5 tools/list_changed", "5 answer"})
		before = len(c.log.all())
		c.do("ask", ok) // listed nowhere, forwarded all the same: an exact name
		equal(t, "told", c.log.all()[before:], []string{"6 resources/list_changed", "6 prompts/list_changed", "6 answer"})
		c.in("applying")
	})
}

// TestNotificationWaitsForAStream: a POST that takes no messages leaves them to
// the session's own stream, or to the next answer, and never to both.
func TestNotificationWaitsForAStream(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		c.own.set(func(s *stream) { s.absent = true })
		step := func(id, tool string, deaf bool) {
			s := c.stream(id)
			s.deaf = deaf
			reply := c.requestOn(s, id, "tools/call", `{"name":"`+tool+`"}`)
			r.up.next().result(ok)
			reply.wait()
			synctest.Wait()
		}
		before := len(c.log.all())
		step("901", "write_plan", true)
		step("902", "status", false)
		equal(t, "with the next answer", c.log.all()[before:],
			[]string{"901 answer", "902 tools/list_changed", "902 resources/list_changed", "902 answer"})
		before = len(c.log.all())
		step("903", "ask", true)
		c.own.set(func(s *stream) { s.absent = false })
		c.s.Listen()
		synctest.Wait()
		equal(t, "when a listener comes", c.log.all()[before:],
			[]string{"903 answer", "own tools/list_changed", "own resources/list_changed", "own prompts/list_changed"})
		before = len(c.log.all())
		step("904", "status", false)
		equal(t, "not again", c.log.all()[before:], []string{"904 answer"})
	})
}

// TestStreamThatBreaksBetweenTwoLists tells each list once all the same.
func TestStreamThatBreaksBetweenTwoLists(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		s := c.stream("901")
		s.hook = func(string) { s.set(func(s *stream) { s.deaf = true }) }
		before := len(c.log.all())
		reply := c.requestOn(s, "901", "tools/call", `{"name":"write_plan"}`)
		r.up.next().result(ok)
		reply.wait()
		synctest.Wait()
		got := c.log.all()[before:]
		slices.Sort(got)
		equal(t, "told", got, []string{"901 answer", "901 tools/list_changed", "own resources/list_changed"})
	})
}

// TestParallelCallsOfAOnceOnlyEdge: exactly one reaches the upstream, the others
// are refused by the state they then find.
func TestParallelCallsOfAOnceOnlyEdge(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		const n = 50
		replies := make([]*reply, n)
		for i := range replies {
			replies[i] = c.call("write_plan")
		}
		synctest.Wait()
		equal(t, "reached the upstream", r.up.count("tools/call write_plan"), 1)
		r.up.next().result(ok)
		succeeded := 0
		for _, reply := range replies {
			if answer := reply.wait(); strings.Contains(answer, `"ok"`) {
				succeeded++
			} else {
				equal(t, "state of the refusal", c.refused(answer, policy.InvalidTransition).State, "review")
			}
		}
		equal(t, "succeeded", succeeded, 1)
		equal(t, "reached the upstream", r.up.count("tools/call write_plan"), 1)
		c.in("review")
	})
}

// TestEachOfManyFailuresGivesTheTurnOn: an edge that fails stays, and the next
// in the queue gets its try.
func TestEachOfManyFailuresGivesTheTurnOn(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		var replies []*reply
		for range 5 {
			replies = append(replies, c.call("write_plan"))
		}
		for range 4 {
			r.up.next().result(failed)
			synctest.Wait()
		}
		equal(t, "tried", r.up.count("tools/call write_plan"), 5)
		r.up.next().result(ok)
		for _, reply := range replies {
			reply.wait()
		}
		c.in("review")
	})
}

// TestStaysRunInParallel, beside the holder of the turn too, and one that ends
// after a step changes nothing.
func TestStaysRunInParallel(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		a, b, mover := c.call("read_file"), c.call("status"), c.call("write_plan")
		synctest.Wait()
		equal(t, "under way", r.up.reached(), []string{"tools/call read_file", "tools/call status", "tools/call write_plan"})
		ka, kb, km := r.up.next(), r.up.next(), r.up.next()
		km.result(ok)
		mover.wait()
		c.in("review")
		ka.result(ok)
		kb.result(failed)
		a.wait()
		b.wait()
		c.in("review")
	})
}

const exclusive = `
version: 1
initial: one
states:
  one: {tools: {switch: {exclusive: true}, read_file: }}
`

// TestExclusive takes the turn though it stays.
func TestExclusive(t *testing.T) {
	bubble(t, exclusive, func(r *rig) {
		c := r.connect(plainHello)
		first, second := c.call("switch"), c.call("switch")
		reading := c.call("read_file")
		synctest.Wait()
		equal(t, "under way", r.up.reached(), []string{"tools/call switch", "tools/call read_file"})
		r.up.next().result(ok)
		r.up.next().result(ok)
		first.wait()
		reading.wait()
		r.up.next().result(ok)
		second.wait()
		equal(t, "reached", r.up.count("tools/call switch"), 2)
	})
}

// TestTurnQueueIsBounded in length and in time.
func TestTurnQueueIsBounded(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		holder := c.call("write_plan")
		q1, q2 := c.call("write_plan"), c.call("write_plan")
		c.refused(c.call("write_plan").wait(), policy.Busy)
		begin := time.Now()
		c.refused(q1.wait(), policy.Busy)
		c.refused(q2.wait(), policy.Busy)
		equal(t, "waited", time.Since(begin), time.Minute)
		r.up.next().result(ok)
		holder.wait()
		equal(t, "reached", r.up.count("tools/call write_plan"), 1)
		c.do("ask", ok)
		c.in("applying")
	}, with(func(c *proxy.Config) { c.MaxQueue = 2 }))
}

// TestBusyWhenTheListsHaveGrownOld: an upstream that promises no list_changed is
// read again, and the refusal waits for that; it was lost.
func TestBusyWhenTheListsHaveGrownOld(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		holder, queued := c.call("write_plan"), c.call("write_plan")
		for kind := range wire.Templates {
			r.up.conn(0).drop(kind)
		}
		c.refused(queued.wait(), policy.Busy)
		r.up.next().result(ok)
		holder.wait()
	})
}

// TestCancelledQueuedCallIsNeverSent, and the one behind it comes by the turn.
func TestCancelledQueuedCallIsNeverSent(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		holder, queued, last := c.call("write_plan"), c.call("write_plan"), c.call("write_plan")
		synctest.Wait()
		c.cancel(queued)
		equal(t, "answer", queued.wait(), "")
		r.up.next().result(failed)
		holder.wait()
		k := r.up.next()
		equal(t, "whose turn", k.m.IDKey(), last.id)
		k.result(ok)
		last.wait()
		equal(t, "reached", r.up.count("tools/call write_plan"), 2)
	})
}

// TestCancelInTheMomentOfTheTurn: whichever comes first, the turn is not kept.
func TestCancelInTheMomentOfTheTurn(t *testing.T) {
	for i := range 50 {
		bubble(t, review, func(r *rig) {
			c := r.connect(plainHello)
			holder, queued, last := c.call("write_plan"), c.call("write_plan"), c.call("write_plan")
			synctest.Wait()
			if k := r.up.next(); i%2 == 0 {
				go k.result(failed)
				c.cancel(queued)
			} else {
				go c.cancel(queued)
				k.result(failed)
			}
			holder.wait()
			synctest.Wait()
			k := r.up.next()
			if k.m.IDKey() == fmt.Sprint(queued.id) { // sent before the cancellation
				k.result(failed)
				k = r.up.next()
			}
			k.result(ok)
			last.wait()
			c.in("review")
		})
	}
}

// TestBusyWhileTheHolderWaitsOnItsClient: at once, not after a minute.
func TestBusyWhileTheHolderWaitsOnItsClient(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		holder := c.call("write_plan")
		k := r.up.next()
		r.up.conn(0).says(`{"jsonrpc":"2.0","id":9,"method":"elicitation/create","params":{"message":"sure?"}}`, nil)
		begin := time.Now()
		c.refused(c.call("write_plan").wait(), policy.Busy)
		equal(t, "waited", time.Since(begin), time.Duration(0))
		k.result(ok)
		holder.wait()
		c.in("review")
	})
}

// TestQueuedCallIsDecidedByTheListOfItsTurn: what was listed when it came may be
// gone when it comes by the turn.
func TestQueuedCallIsDecidedByTheListOfItsTurn(t *testing.T) {
	const globs = "version: 1\ninitial: a\nstates:\n  a: {tools: {\"list_*\": {exclusive: true}}}\n"
	bubble(t, globs, func(r *rig) {
		c := r.connect(plainHello)
		first, second := c.call("list_a"), c.call("list_a")
		synctest.Wait()
		r.up.names(wire.Tools, "other")
		r.up.conn(0).says(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, nil)
		r.up.next().result(ok)
		first.wait()
		c.refused(second.wait(), policy.UnknownAction)
		equal(t, "reached", r.up.count("tools/call list_a"), 1)
	})
}
