package proxy_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
)

const remembers = `
version: 1
initial: work
registers:
  reads: {set: text, max: 100}
  plan: text
states:
  work:
    tools:
      read_file: {set: {reads: {add: args.path}}}
      write_plan: {when: args.path in registers.reads, because: Read it first., on_any: stay}
      status:
        outcomes: {done: result.structuredContent.done == true}
        on_done: {to: rest, set: {plan: result.structuredContent.id}}
        on_any: stay
      apply: {when: has(registers.plan)}
      rollback: {set: {plan: "args.id"}}
      request_approval: {at_most: {run: 2, minute: 1}, because: One a minute.}
  rest:
    after: {30m: work}
    tools: {apply: {when: has(registers.plan) && args.plan == registers.plan, on_any: work}}
`

func (c *client) callWith(tool, arguments string) *reply {
	return c.request("tools/call", `{"name":"`+tool+`","arguments":`+arguments+`}`)
}

func (c *client) doWith(tool, arguments, result string) string {
	r := c.callWith(tool, arguments)
	c.up.next().result(result)
	return r.wait()
}

// TestGuardsOfCalls refuses by what a run remembers, in the same words whether a guard is false or an error.
func TestGuardsOfCalls(t *testing.T) {
	bubble(t, remembers, func(r *rig) {
		c := r.connect(plainHello)
		never := c.refused(c.callWith("write_plan", `{"path":"a"}`).wait(), policy.GuardFailed)
		c.doWith("read_file", `{"path":"a"}`, ok)
		c.doWith("write_plan", `{"path":"a"}`, ok)
		for _, arguments := range []string{`{"path":"b"}`, `{"path":["a"]}`, `{"path":null}`, `{}`} {
			if again := c.refused(c.callWith("write_plan", arguments).wait(), policy.GuardFailed); again.Message != never.Message || !strings.Contains(again.Message, "Read it first.") {
				t.Errorf("%s: %s", arguments, again.Message)
			}
		}
		for _, arguments := range []string{`{"path":"a","Path":"b"}`} {
			if answer := c.callWith("write_plan", arguments).wait(); !strings.Contains(answer, "-32600") {
				t.Errorf("%s: %s", arguments, answer)
			}
		}
	})
	bubble(t, remembers, func(r *rig) {
		c := r.connect(plainHello)
		opaque := c.refused(c.callWith("write_plan", `{"path":"a"}`).wait(), policy.NotAvailable)
		if strings.Contains(opaque.Message, "Read") {
			t.Error(opaque.Message)
		}
	}, with(func(c *proxy.Config) { c.Refusals = refusal.Opaque }))
}

// TestOutcomesOfCalls gives the client the answer as it came, and moves the run by what it says.
func TestOutcomesOfCalls(t *testing.T) {
	bubble(t, remembers, func(r *rig) {
		c := r.connect(plainHello)
		const half, done = `{"structuredContent":{"done":false},"content":[]}`, `{"structuredContent":{"done":true,"id":"p1"},"content":[]}`
		if answer := c.do("status", half); !strings.Contains(answer, half) {
			t.Error(answer)
		}
		c.in("work")
		c.told()
		if answer := c.do("status", done); !strings.Contains(answer, done) {
			t.Error(answer)
		}
		c.in("rest")
		c.refused(c.callWith("apply", `{"plan":"p2"}`).wait(), policy.GuardFailed)
		c.doWith("apply", `{"plan":"p1"}`, ok)
		c.in("work")
	})
}

// TestListsFollowWhatARunRemembers tells a client of a stay that shows it another tool, before its answer.
func TestListsFollowWhatARunRemembers(t *testing.T) {
	bubble(t, remembers, func(r *rig) {
		c := r.connect(plainHello)
		if shown := c.listed(wire.Tools); strings.Contains(shown, "apply") {
			t.Error(shown)
		}
		other := c.told()
		before := len(c.log.all())
		c.doWith("rollback", `{"id":"p1"}`, ok)
		lines := slices.DeleteFunc(slices.Clone(c.log.all()[before:]), func(s string) bool { return strings.Contains(s, "resources") })
		if len(lines) != 2 || !strings.Contains(lines[0], "tools/list_changed") || !strings.Contains(lines[1], "answer") {
			t.Errorf("%q, after %q", lines, other)
		}
		if shown := c.listed(wire.Tools); !strings.Contains(shown, "apply") {
			t.Error(shown)
		}
		before = len(c.log.all())
		c.doWith("rollback", `{"id":"p2"}`, ok)
		synctest.Wait()
		if lines := c.log.all()[before:]; len(lines) != 1 {
			t.Errorf("what shows the same is told of: %q", lines)
		}
	})
}

// TestLimitOfACall says when it is free again.
func TestLimitOfACall(t *testing.T) {
	bubble(t, remembers, func(r *rig) {
		c := r.connect(plainHello)
		c.do("request_approval", ok)
		<-time.After(20 * time.Second)
		if said := c.refused(c.call("request_approval").wait(), policy.LimitReached).Message; !strings.Contains(said, "One a minute.") || !strings.Contains(said, "40s") {
			t.Error(said)
		}
		<-time.After(40 * time.Second)
		c.do("request_approval", ok)
		<-time.After(time.Hour)
		if said := c.refused(c.call("request_approval").wait(), policy.LimitReached).Message; strings.Contains(said, "Try again in") {
			t.Error(said)
		}
	})
}

// TestClockMovesARun moves it by itself, and tells who is on it.
func TestClockMovesARun(t *testing.T) {
	bubble(t, remembers, func(r *rig) {
		c := r.connect(plainHello)
		c.do("status", `{"structuredContent":{"done":true,"id":"p1"},"content":[]}`)
		c.told()
		<-time.After(30*time.Minute - time.Second)
		if told := c.told(); len(told) != 0 {
			t.Errorf("told early: %q", told)
		}
		<-time.After(time.Second)
		if told := c.told(); !slices.Contains(told, "tools/list_changed") {
			t.Errorf("told %q", told)
		}
		c.in("work")
	})
}

// TestClockWaitsForTheTurn lets a call end that is under way when the clock is due.
func TestClockWaitsForTheTurn(t *testing.T) {
	bubble(t, remembers, func(r *rig) {
		c := r.connect(plainHello)
		c.do("status", `{"structuredContent":{"done":true,"id":"p1"},"content":[]}`)
		<-time.After(29*time.Minute + 58*time.Second)
		call := c.callWith("apply", `{"plan":"p1"}`)
		k := c.up.next()
		<-time.After(time.Minute)
		k.result(failed)
		call.wait()
		c.in("work")
		c.told()
		<-time.After(time.Hour)
		if told := c.told(); len(told) != 0 {
			t.Errorf("it goes off again: %q", told)
		}
	})
}
