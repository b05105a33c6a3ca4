package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/outcome"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// complete carries completion/complete for what is bound now: a hidden name is
// not to be found out by a sibling method.
func (c *call) complete() wire.Pending {
	ref := c.m.P.Ref
	switch {
	case ref == nil:
	case ref.Type == "ref/prompt" && ref.Name != "":
		return c.relayBound(policy.Prompt, ref.Name)
	case ref.Type == "ref/resource" && ref.URI != "":
		return c.relayBound(policy.Resource, ref.URI)
	}
	return c.fail(wire.CodeInvalidParams, "params.ref must name a prompt or a resource")
}

// relayBound relays a request about a name that is bound now.
func (c *call) relayBound(k policy.Kind, name string) wire.Pending {
	c.Kind, c.Name = k, name
	if conn := c.s.link.Live(); conn != nil {
		c.look(conn.Cached(surface.ListOf(k)))
	}
	if !c.Known {
		return c.later(c.boundFetched)
	}
	return c.relayIfBound()
}

func (c *call) boundFetched() {
	conn, err := c.connect()
	if err == nil {
		err = c.fetch(conn)
	}
	if err != nil {
		c.unsubscribed()
		c.unavailable(err)
		return
	}
	wait(c.relayIfBound())
}

func (c *call) relayIfBound() wire.Pending {
	at := c.where()
	c.Verdict = at.Decide(&policy.Request{Kind: c.Kind, Name: c.Name, Who: c.Who, Listed: c.Listed})
	switch {
	case !c.Verdict.Bound || !at.Visible(c.Kind, c.Name):
		c.unsubscribed()
		return c.refuse(c.Verdict.Code)
	case c.m.Method == "resources/unsubscribe":
		return c.relayUnlessKept()
	}
	return c.relay()
}

// relayUnlessKept relays the end of a subscription, but of one that another
// session has over the same upstream.
func (c *call) relayUnlessKept() wire.Pending {
	if c.s.link.Kept(c.m.P.URI) {
		return c.result([]byte("{}"))
	}
	return c.relay()
}

// relay sends a request upstream that steps nothing, and gives back its answer.
func (c *call) relay() wire.Pending {
	conn := c.s.link.Live()
	if c.client.Stateless() && c.steps() && !c.s.run.Shadow() { // the shadow has gone meanwhile
		return c.routed()
	}
	if conn != nil {
		if rest, ok := c.relayOver(conn); ok {
			return rest
		}
	}
	decided := c.s.run.Where()
	return c.later(func() {
		conn, err := c.connect()
		switch {
		case err != nil:
			c.unsubscribed()
			c.unavailable(err)
		case c.client.Stateless() && c.steps() && !c.s.run.Shadow():
			wait(c.anew())
		case c.s.run.Where() != decided && c.m.Method != "resources/unsubscribe":
			wait(c.anew())
		default:
			rest, ok := c.relayOver(conn)
			if !ok {
				c.unsubscribed()
				rest = c.unsent()
			}
			wait(rest)
		}
	})
}

// relayOver relays a request over a connection, and reports false where it was not
// sent. Whether a subscription is to end is looked at here again: the request may
// have waited for the connection.
func (c *call) relayOver(conn *bridge.Upstream) (rest wire.Pending, ok bool) {
	kept, sent := false, false
	if c.m.Method == "resources/unsubscribe" {
		kept, sent = c.s.link.End(c.m.P.URI, func() bool { return c.start(conn) })
	} else {
		sent = c.start(conn)
	}
	switch {
	case kept:
		return c.doneWith([]byte("{}")), true
	case !sent:
		return nil, false
	case c.m.Method == "resources/subscribe":
		c.s.wants.Asked(c.m.P.URI)
	}
	return c.awaiting(c.relayed), true
}

// anew sends a request its way again: while it waited for a connection another
// place was reached, in which it may be refused.
func (c *call) anew() wire.Pending {
	c.unsubscribed()
	c.Overlooked = policy.CodeNone
	return c.routed()
}

func (c *call) relayed(m *wire.Message, err error) {
	c.seen.Answered(m, err)
	if err != nil || m.Kind == wire.Failure {
		c.unsubscribed()
	}
	if c.m.Method == "resources/unsubscribe" {
		c.s.link.Ended(c.m.P.URI)
	}
	c.reply(m, err, outcome.None)
}

// unsubscribed takes back a subscription that this call has entered.
func (c *call) unsubscribed() {
	if c.subscribes {
		c.s.wants.Leave(c.m.P.URI)
	}
}
