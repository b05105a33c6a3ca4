package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/operator"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

const approving = `version: 1
initial: work
everywhere: {tools: [look]}
states:
  work:
    tools:
      pay: {approve: {by: operator, message: Does the amount fit?, timeout: 2m}}
      move: {approve: {by: operator}, on_any: done}
      limited: {at_most: 1, approve: {by: operator}}
      leave: {on_any: done}
  done: {tools: {again: {on_any: work}}}
`

// with calls a tool with arguments, and does not wait for the answer.
func (c *client) with(tool, arguments string) *reply {
	c.t.Helper()
	return c.request("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":{"progressToken":"p"}}`, tool, arguments))
}

// asked are the approvals that are wanted.
func (r *rig) asked(n int) []runs.Asked {
	r.t.Helper()
	synctest.Wait()
	all := r.p.Operators().Approvals()
	if len(all) != n {
		r.t.Fatalf("%d approvals are wanted, want %d: %+v", len(all), n, all)
	}
	return all
}

func (r *rig) answers(id string, allow bool, seq *uint64) (no *operator.Refused) {
	_, err := r.p.Operators().Approve(context.Background(), operator.Answer{ID: id, Said: map[bool]approval.State{true: approval.Allowed, false: approval.Denied}[allow], Seq: seq, From: olga})
	no, _ = errors.AsType[*operator.Refused](err)
	return no
}

func (r *rig) allows(id string) {
	r.t.Helper()
	if no := r.answers(id, true, nil); no != nil {
		r.t.Fatal(no)
	}
}

// goes has the upstream answer the one call that has come to it.
func (r *rig) goes(c *client, call *reply) {
	r.t.Helper()
	r.up.next().result(ok)
	if answer := call.wait(); !strings.Contains(answer, `"result"`) || strings.Contains(answer, "isError") {
		r.t.Errorf("%s", answer)
	}
}

func (r *rig) idle() {
	r.t.Helper()
	synctest.Wait()
	select {
	case k := <-r.up.arrived:
		r.t.Errorf("%s went upstream", k.what())
	default:
	}
}

// A call goes when it is approved, and once: then it is asked anew.
func TestOneYesIsOneCall(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		call := c.with("pay", `{"amount":3}`)
		if !call.pending() {
			t.Fatal(call.wait())
		}
		x := r.asked(1)[0]
		if x.Name != "pay" || string(x.Arguments) != `{"amount":3}` || x.Message != "Does the amount fit?" || x.ExpireAt.Sub(x.AskedAt) != 2*time.Minute {
			t.Errorf("%+v", x)
		}
		if told := strings.Join(call.messages(), ""); !strings.Contains(told, `"progressToken":"p","progress":-45.000`) {
			t.Errorf("told: %s", told)
		}
		r.allows(x.ID)
		r.goes(c, call)
		if no := r.answers(x.ID, true, nil); no == nil || no.Why != operator.NoApproval {
			t.Errorf("an answer to what was used: %v", no)
		}
		again := c.with("pay", `{"amount":3}`)
		if !again.pending() || r.asked(1)[0].ID == x.ID {
			t.Error("a yes was used twice")
		}
		c.cancel(again)
	})
}

// Unanswered in time the call is to be sent again, and waits on with the same question, or goes.
func TestApprovalPending(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		call := c.with("pay", `{"amount":3}`)
		id := r.asked(1)[0].ID
		began := time.Now()
		said := c.refused(call.wait(), policy.ApprovalPending)
		if held := time.Since(began); held != 45*time.Second || !strings.Contains(said.Message, "Call it again") {
			t.Errorf("after %v: %s", held, said.Message)
		}
		call = c.with("pay", `{ "amount" : 3 }`)
		if r.asked(1)[0].ID != id {
			t.Error("it is asked anew")
		}
		c.cancel(call) // which leaves it open
		synctest.Wait()
		r.asked(1)
		r.allows(id)
		r.asked(0)
		call = c.with("pay", `{"amount":3}`)
		r.goes(c, call)
	})
}

// A no holds as long as the run is in the state, and nobody is asked again.
func TestNoHoldsForTheVisit(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		call := c.with("pay", `{"amount":3}`)
		if no := r.answers(r.asked(1)[0].ID, false, nil); no != nil {
			t.Fatal(no)
		}
		c.refused(call.wait(), policy.ApprovalDenied)
		c.refused(c.with("pay", `{"amount":3}`).wait(), policy.ApprovalDenied)
		r.asked(0)
		c.do("leave", ok)
		c.do("again", ok)
		call = c.with("pay", `{"amount":3}`)
		r.asked(1)
		c.cancel(call)
		r.idle()
	})
}

// Nobody's answer in time is a no, told to all who wait, or to the next; then it is asked anew.
func TestApprovalTimesOut(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		first := c.with("pay", `{"amount":3}`)
		c.refused(first.wait(), policy.ApprovalPending)
		time.Sleep(45 * time.Second)
		held, other := c.with("pay", `{"amount":3}`), c.with("pay", `{"amount":3}`)
		c.refused(held.wait(), policy.ApprovalDenied)
		c.refused(other.wait(), policy.ApprovalDenied)
		r.asked(0)
		anew := c.with("pay", `{"amount":3}`)
		r.asked(1)
		c.cancel(anew)
		time.Sleep(2 * time.Minute)
		c.refused(c.with("pay", `{"amount":3}`).wait(), policy.ApprovalDenied) // the next is told
		anew = c.with("pay", `{"amount":3}`)
		r.asked(1)
		c.cancel(anew)
		r.idle()
	})
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		calls := []*reply{c.with("pay", `{}`), c.with("pay", `{}`), c.with("pay", `{}`)}
		for _, call := range calls {
			if said := c.refused(call.wait(), policy.ApprovalDenied); !strings.Contains(said.Message, "in time") {
				t.Error(said.Message)
			}
		}
		r.idle()
	}, with(func(c *proxy.Config) { c.ApprovalHold = 3 * time.Minute }))
}

// Other arguments are another call, and two big numbers that are one as doubles are two.
func TestArgumentsChangedAfterAsking(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		call := c.with("pay", `{"id":9007199254740993}`)
		r.allows(r.asked(1)[0].ID)
		r.goes(c, call)
		call = c.with("pay", `{"id":9007199254740993}`)
		r.allows(r.asked(1)[0].ID)
		for _, arguments := range []string{`{"id":9007199254740992}`, `{"id":9007199254740993.0}`, `{"ID":9007199254740993}`, `{"id":"9007199254740993"}`, `{"id":9007199254740993,"x":null}`, `{"id":9007199254740993,"ID":1}`, `{}`} {
			call := c.with("pay", arguments)
			if !call.pending() {
				t.Errorf("%s goes: %s", arguments, call.wait())
			}
			c.cancel(call)
		}
		r.goes(c, call)
	})
}

// Of two that were asked for the first leaves the state, and ends the other.
func TestApprovedCallLeavesTheState(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		move, pay := c.with("move", `{}`), c.with("pay", `{}`)
		all := r.asked(2)
		if all[0].Name != "move" {
			all[0], all[1] = all[1], all[0]
		}
		r.allows(all[0].ID)
		r.goes(c, move)
		c.refused(pay.wait(), policy.InvalidTransition)
		r.asked(0)
		if no := r.answers(all[1].ID, true, nil); no == nil || no.Why != operator.NoApproval {
			t.Errorf("%v", no)
		}
		c.do("again", ok)
		r.asked(0)
		r.idle()
	})
}

// A yes given to a visit is none for the next one of the same state.
func TestYesOfAnotherVisit(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		call := c.with("pay", `{}`)
		c.cancel(call)
		r.allows(r.asked(1)[0].ID)
		c.do("leave", ok)
		c.do("again", ok)
		call = c.with("pay", `{}`)
		if !call.pending() {
			t.Fatal(call.wait())
		}
		c.cancel(call)
		r.idle()
	})
}

// A yes of one run is none of another's.
func TestYesOfAnotherRun(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		a, b := r.connect(plainHello), r.connect(plainHello)
		first := a.with("pay", `{}`)
		id := r.asked(1)[0].ID
		second := b.with("pay", `{}`)
		r.asked(2)
		r.allows(id)
		r.goes(a, first)
		if !second.pending() || r.asked(1)[0].ID == id {
			t.Error("one yes, two calls")
		}
		b.cancel(second)
		r.idle()
	})
}

// Of 64 at once with one yes exactly one goes.
func TestSixtyFourAtOnceWithOneYes(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		var calls []*reply
		for range 64 {
			calls = append(calls, c.with("pay", `{"amount":3}`))
		}
		for range 3 {
			r.allows(r.asked(1)[0].ID)
			r.up.next().result(ok)
			r.idle()
		}
		waiting := 0
		for _, call := range calls {
			if call.pending() {
				waiting++
				c.cancel(call)
			}
		}
		if waiting != 61 {
			t.Errorf("%d wait still, want 61", waiting)
		}
	})
}

// A yes permits nothing that a limit refuses by then, and a call that waits counts for none.
func TestYesBeyondALimit(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		first, second := c.with("limited", `{"n":1}`), c.with("limited", `{"n":2}`)
		all := r.asked(2)
		r.allows(all[0].ID)
		r.allows(all[1].ID)
		synctest.Wait()
		r.up.next().result(ok)
		refused := 0
		for _, call := range []*reply{first, second} {
			if strings.Contains(call.wait(), "limit_reached") {
				refused++
			}
		}
		if refused != 1 {
			t.Errorf("%d are over the limit", refused)
		}
		r.idle()
	})
}

// What an operator has not seen nobody approves: the run has moved since.
func TestApprovalOfWhatHasMoved(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		c.do("leave", ok)
		c.do("again", ok)
		call := c.with("pay", `{}`)
		x := r.asked(1)[0]
		old := x.Info.Seq - 1
		if no := r.answers(x.ID, true, &old); no == nil || no.Why != operator.Moved {
			t.Errorf("%v", no)
		}
		if no := r.answers(x.ID, true, &x.Info.Seq); no != nil {
			t.Error(no)
		}
		r.goes(c, call)
	})
}

// Eight are open in a run, and one more is refused at once.
func TestApprovalsOfARunAreBounded(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		var calls []*reply
		for i := range 8 {
			calls = append(calls, c.with("pay", fmt.Sprintf(`{"n":%d}`, i)))
		}
		r.asked(8)
		if said := c.refused(c.with("pay", `{"n":8}`).wait(), policy.Busy); !strings.Contains(said.Message, "too many calls wait for an approval") {
			t.Error(said.Message)
		}
		if said := c.refused(c.with("pay", `{"text":"`+strings.Repeat("x", 64<<10)+`"}`).wait(), policy.ApprovalDenied); !strings.Contains(said.Message, "64 KiB") {
			t.Error(said.Message)
		}
		for _, call := range calls {
			c.cancel(call)
		}
		r.asked(8) // who cancels does not make room
		r.idle()
	})
}

// The drain ends what is held, and nothing was sent.
func TestDrainWhileHeld(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		call := c.with("pay", `{}`)
		id := r.asked(1)[0].ID
		d := r.drain(time.Minute)
		has(t, call.wait(), "upstream_unavailable", "fsm-proxy is ending")
		if no := r.answers(id, true, nil); no == nil || no.Why != operator.Ending {
			t.Errorf("%v", no)
		}
		<-d.done
		r.idle()
	})
}

// A reload that has to wait for the turn ends what was asked all the same: nobody is left to answer what would not be sent.
func TestReloadThatWaitsEndsWhatWasAsked(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		leave := c.with("leave", `{}`)
		kept := r.up.next()
		pay := c.with("pay", `{"amount":3}`)
		was := r.asked(1)[0]
		changed := strings.Replace(approving, "Does the amount fit?", "Is it right?", 1)
		r.p.Reload(parse(t, changed))
		now := r.asked(1)[0]
		if no := r.answers(was.ID, true, nil); now.ID == was.ID || now.Message != "Is it right?" || no == nil || no.Why != operator.NoApproval {
			t.Errorf("%+v, %v", now, no)
		}
		kept.result(ok)
		leave.wait()
		c.refused(pay.wait(), policy.InvalidTransition)
		r.asked(0)
		r.idle()
	})
}

// A reload ends what was asked: a policy that says something else is asked about anew, and one that asks no more lets go.
func TestReloadWhileHeld(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		call := c.with("pay", `{}`)
		old := r.asked(1)[0].ID
		changed := strings.Replace(approving, "Does the amount fit?", "Is it right?", 1)
		r.p.Reload(parse(t, changed))
		x := r.asked(1)[0]
		if x.ID == old || x.Message != "Is it right?" || !call.pending() {
			t.Errorf("%+v", x)
		}
		r.p.Reload(parse(t, strings.Replace(changed, "{approve: {by: operator, message: Is it right?, timeout: 2m}}", "stay", 1)))
		r.goes(c, call)
		r.asked(0)
	})
}

// The end of a session ends what it has asked.
func TestSessionEndsWhileHeld(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		c.with("pay", `{}`)
		r.asked(1)
		c.s.Close()
		r.asked(0)
		r.idle()
	}, with(func(c *proxy.Config) { c.Keys = [2]runs.Key{{Kind: runs.Process}, {Kind: runs.Process}} }))
}

// In shadow nobody is asked, and what waits goes.
func TestApprovalsInShadow(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		call := c.with("pay", `{}`)
		r.asked(1)
		r.p.SetMode(runs.Shadow)
		r.goes(c, call)
		call = c.with("pay", `{}`)
		r.goes(c, call)
		r.asked(0)
	})
}

// Opaque refusals do not tell that somebody has said no.
func TestApprovalsOpaque(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		call := c.with("pay", `{}`)
		r.answers(r.asked(1)[0].ID, false, nil)
		if answer := call.wait(); strings.Contains(answer, "approv") || !strings.Contains(answer, "not_available") {
			t.Error(answer)
		}
	}, with(func(c *proxy.Config) { c.Refusals = 2 }))
}

// A yes to somebody's call is none to the same call of somebody else in the same run.
func TestYesOfAnotherPrincipal(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		a, b := r.connect(plainHello), r.connect(plainHello)
		a.who, b.who = &asker.Who{Subject: "ann", Issuer: "tokens"}, &asker.Who{Subject: "ann", Issuer: "elsewhere"}
		first := a.with("pay", `{}`)
		id := r.asked(1)[0].ID
		second := b.with("pay", `{}`)
		r.asked(2)
		a.cancel(first)
		r.allows(id)
		r.idle()
		if !second.pending() {
			t.Errorf("another's yes is used: %s", second.wait())
		}
		r.goes(a, a.with("pay", `{}`))
		b.cancel(second)
		r.idle()
	}, with(func(c *proxy.Config) { c.Keys = [2]runs.Key{{Kind: runs.Process}, {Kind: runs.Process}} }))
}

// The token by which a call was sent is out of date: nobody approves it any more.
func TestTokenExpiresWhileHeld(t *testing.T) {
	bubble(t, approving, func(r *rig) {
		c := r.connect(plainHello)
		c.who = &asker.Who{Subject: "ann", Claims: fmt.Appendf(nil, `{"exp":%d}`, time.Now().Add(30*time.Second).Unix())}
		call := c.with("pay", `{}`)
		x := r.asked(1)[0]
		if left := x.ExpireAt.Sub(x.AskedAt); left > 30*time.Second {
			t.Errorf("it stays open for %v", left)
		}
		c.refused(call.wait(), policy.ApprovalDenied)
		if time.Since(x.AskedAt) > 31*time.Second {
			t.Error("it was held on")
		}
		if no := r.answers(x.ID, true, nil); no == nil {
			t.Error("it was approved late")
		}
		r.idle()
	})
}

// What was asked about was another plan: the condition is looked at again, and by the seq that was shown the operator is
// told that the run has changed.
func TestPlanSwappedWhileHeld(t *testing.T) {
	const source = "version: 1\ninitial: a\nregisters: {plan: text}\nstates:\n  a:\n    tools:\n      plan: {set: {plan: args.plan}}\n" +
		"      apply: {when: args.plan == registers.plan, approve: {by: operator}}\n"
	bubble(t, source, func(r *rig) {
		c := r.connect(plainHello)
		plan := func(name string) {
			set := c.with("plan", `{"plan":"`+name+`"}`)
			r.goes(c, set)
		}
		plan("p1")
		call := c.with("apply", `{"plan":"p1"}`)
		x := r.asked(1)[0]
		if !strings.Contains(string(x.Registers.AppendJSON(nil)), `"p1"`) {
			t.Errorf("%s", x.Registers.AppendJSON(nil))
		}
		plan("p2")
		if no := r.answers(x.ID, true, &x.Info.Seq); no == nil || no.Why != operator.Moved {
			t.Errorf("approved what nobody has seen: %v", no)
		}
		r.allows(x.ID)
		c.refused(call.wait(), policy.GuardFailed)
		r.idle()
		plan("p1")
		r.goes(c, c.with("apply", `{"plan":"p1"}`)) // that yes was to this call
	})
}
