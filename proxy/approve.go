package proxy

import (
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/operator"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// approve holds a call until it is approved, or refused, or its client has waited for long enough. The request of a
// stateless client whose user is asked is answered with the question, and waits no longer.
func (c *call) approve() {
	asks := c.Verdict.Alternative.Approve
	switch {
	case asks.By == policy.ByClient && !c.introduction().Elicits():
		wait(c.refuseText(policy.ApprovalDenied, refusal.Called(c.Kind, c.Name)+refusal.CannotAsk))
	case asks.By == policy.ByClient && c.client.Stateless():
		in := c.input()
		go c.hold(time.Duration(asks.Seconds+1) * time.Second) // by when its time has run out
		<-in.Released()
	default:
		c.hold(wire.WaitsOn(c.out, c.s.p.cfg.ApprovalHold))
	}
}

// hold is the rest of the call's way, which is held for so long.
func (c *call) hold(most time.Duration) {
	over := c.seen.Waiting()
	conn := c.s.link.Live()
	withdraw := func() {}
	e, why := c.s.run.Hold(c, &runs.Hold{
		For: most, MaxQueue: c.s.p.cfg.MaxQueue, Cancelled: c.flight.Cancellation(), Ending: c.s.p.drain.Taking.Done(),
		Question: approval.Question{By: c.s, Who: c.who().Principal.Subject, Expires: c.Who.Expires()},
		Ready: func() bool {
			if conn = c.s.link.Live(); conn != nil {
				c.look(conn.Cached(surface.ListOf(c.Kind)))
			}
			return conn != nil
		},
		Asked: func(q *approval.Question, fresh bool) {
			withdraw()
			if withdraw = func() {}; q.Of == policy.ByClient && (fresh || q.By != c.s || c.client.Stateless()) {
				withdraw = c.askUser(q)
			} else if fresh && q.Of == policy.ByOperator && c.s.p.cfg.Asked != nil {
				c.s.p.cfg.Asked(q.ID)
			}
		},
		Beat: c.stillHeld,
	})
	over()
	if why == runs.Decided { // else the user may answer yet, and the same call again goes
		withdraw()
	}
	switch {
	case why == runs.Unready:
		c.prepare()
	case why == runs.Unanswered:
		wait(c.refuse(policy.ApprovalPending))
	case why != runs.Decided:
		c.unsent()
	case e == run.Queued:
		c.awaitTurn(c.proceed)
	case e == run.Crowded && !c.Verdict.Allowed:
		wait(c.refuseText(policy.Busy, refusal.TooManyAsk))
	default:
		wait(c.decided(e, conn))
	}
}

// stillHeld tells a client that wants to know of progress that its call waits. The numbers are below those that any
// server begins with, and rise.
func (c *call) stillHeld(left float64) {
	if c.m.P.MetaToken.Present() {
		c.stream(false).Send(wire.Progress(c.m.Bytes(c.m.P.MetaToken), -left, "This call waits for an approval."))
	}
}

// askUser asks the call's user, and returns how that is taken back.
func (c *call) askUser(q *approval.Question) (withdraw func()) {
	params := approval.Elicitation(c.Kind.String(), c.Name, q.Message, c.m.Bytes(c.m.P.Arguments))
	return c.s.asks.AskOwn(&c.s.p.asks, c.s, "elicitation/create", params, c, func(result []byte) {
		c.s.p.Operators().ApproveByClient(c.s.run, operator.Answer{ID: q.ID, Said: approval.Elicited(result), From: *c.who()})
	})
}
