package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// approve holds a call until it is approved, or refused, or its client has waited for long enough.
func (c *call) approve() {
	over := c.seen.Waiting()
	conn := c.s.link.Live()
	e, why := c.s.run.Hold(c, &runs.Hold{
		For: c.s.p.cfg.ApprovalHold, MaxQueue: c.s.p.cfg.MaxQueue, Cancelled: c.flight.Cancellation(), Ending: c.s.p.drain.Taking.Done(),
		Question: approval.Question{By: c.s, Who: c.who().Principal.Subject, Expires: c.Who.Expires()},
		Ready: func() bool {
			if conn = c.s.link.Live(); conn != nil {
				c.look(conn.Cached(surface.ListOf(c.Kind)))
			}
			return conn != nil
		},
		Asked: c.s.p.cfg.Asked, Beat: c.stillHeld,
	})
	over()
	switch {
	case why == runs.Unready:
		c.prepare()
	case why == runs.Unanswered:
		wait(c.refuse(policy.ApprovalPending))
	case why == runs.Cancelled, why == runs.Ending:
		c.unsent()
	case e == run.Queued:
		c.awaitTurn(c.proceed)
	case e == run.Crowded && !c.Verdict.Allowed:
		wait(c.refuseText(policy.Busy, "This was not sent: too many calls wait for an approval. Try again when one of them is decided."))
	default:
		wait(c.decided(e, conn))
	}
}

// stillHeld tells a client that wants to know of progress that its call waits. The numbers are below those that any
// server begins with, and rise.
func (c *call) stillHeld(left float64) {
	if c.m.P.MetaToken.Present() {
		c.stream(false).Send(wire.Progress(c.m.Bytes(c.m.P.MetaToken), -left, "An operator has been asked to approve this call."))
	}
}
