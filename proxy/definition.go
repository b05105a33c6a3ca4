package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// definition is what the upstream's list says of what a call asks for.
type definition struct {
	offer    *wire.List      // the list; nil: it is not at hand
	pins     *catalogue.Pins // that the tool was compared with
	changes  lock.Changes    // since the tool was locked; where that refuses it
	misfit   handle.Reason   // why the tool's calls cannot carry a handle
	nameless bool            // no list is there for the names in an annotation
	asked    bool            // one was asked for
}

// compare finds out whether the tool that is called is what was locked. The list is the one
// that decides everything else.
func (c *call) compare() {
	c.pins, c.Locked = c.s.p.pins.Load(), run.AsLocked
	if c.changes = c.pins.Changes(c.offer, c.Name); c.changes != nil {
		c.Locked = run.Differs
	}
}

// compareAgain compares it with a lock that has been put in force since, so that no call is
// decided by the one before.
func (c *call) compareAgain() {
	if c.Locked != run.NotCompared && c.pins != c.s.p.pins.Load() {
		c.compare()
	}
}

// handled reports whether the call has to be of a tool that can take the argument.
func (c *call) handled() bool {
	return c.s.p.handles != nil && c.client.Stateless() && c.Kind == policy.Tool
}

// unfit reports whether the call was refused since its tool cannot take the argument.
func (c *call) unfit() bool {
	return c.Misfit && c.Verdict.Bound && c.Verdict.Code == policy.NotAvailable && !c.Outlived
}

// validated reports whether the policy wants the call's arguments checked.
func (c *call) validated() bool { return c.Kind == policy.Tool && c.Snapshot.InForce().Validate() }

// invalid says why the call's arguments do not fit the listed input schema, where the
// policy asks for that; "": they do. In shadow there may be no list to go by.
func (c *call) invalid() string {
	if !c.validated() {
		return ""
	}
	return c.s.p.lists.Check(c.offer, c.Name, c.m.Bytes(c.m.P.Arguments))
}

// headed is the stream of a call of a tool whose headers are to say what its
// arguments do; nil: none is.
func (c *call) headed() wire.HeadedStream {
	if !c.client.Stateless() || c.Kind != policy.Tool || c.m.Method != "tools/call" {
		return nil
	}
	out, _ := c.out.(wire.HeadedStream)
	return out
}

// headerFault says in what a call's headers and its arguments differ; empty: in
// nothing.
func (c *call) headerFault() string {
	out := c.headed()
	if out == nil || c.offer == nil {
		return ""
	}
	return c.s.p.lists.HeaderFault(c.offer, c.Name, c.m.Bytes(c.m.P.Arguments), out.Headers)
}
