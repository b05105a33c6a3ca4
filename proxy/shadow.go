package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// shadowed takes a request its way where nothing is refused: route is the one that
// it would take else, nil for none. What is no call through the automaton goes
// upstream as it came.
func (c *call) shadowed(route route) wire.Pending {
	p := &c.m.P
	if c.s.run.Runless() && c.steps() {
		return c.relay() // of no run nothing is to be noted
	}
	switch c.m.Method {
	case "initialize", "logging/setLevel", "server/discover", "subscriptions/listen":
		if route != nil { // it is known, and the proxy answers it by itself
			return route(c)
		}
	case "tools/call", "prompts/get":
		return c.gateShadowed(route, p.NameAt)
	case "resources/read":
		return c.gateShadowed(route, p.URIAt)
	case "tools/list":
		return c.listShadowed(wire.Tools)
	case "resources/list":
		return c.listShadowed(wire.Resources)
	case "prompts/list":
		return c.listShadowed(wire.Prompts)
	case "resources/subscribe":
		return c.subscribeShadowed()
	case "resources/unsubscribe":
		c.s.wants.Leave(p.URI)
		return c.relayUnlessKept()
	case "completion/complete":
		return c.completeShadowed()
	}
	if c.refusesMethod() {
		c.overlook(policy.NotAvailable)
	}
	return c.relay()
}

// refusesMethod reports whether the policy would refuse a request by its method
// alone.
func (c *call) refusesMethod() bool {
	now := c.s.policyNow()
	switch c.m.Method {
	case "ping":
		return false
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/list", "tasks/update":
		return !c.s.tasked(c.client)
	case "resources/templates/list":
		return now.Templates() == policy.TemplatesRefuse
	}
	return !now.Passthrough(c.m.Method)
}

// gateShadowed gates a call that the automaton can decide, and relays one that it
// would refuse unread.
func (c *call) gateShadowed(route route, name wire.Span) wire.Pending {
	if name.Present() && c.m.Raw[name.Start] == '"' {
		return route(c)
	}
	c.overlook(policy.UnknownAction)
	return c.relay()
}

// listShadowed relays a list request, page by page as the client asks. What the
// client is shown then is not known here.
func (c *call) listShadowed(k wire.ListKind) wire.Pending {
	c.s.shown.Shows(k, catalogue.View{})
	return c.relay()
}

func (c *call) subscribeShadowed() wire.Pending {
	if c.m.P.URI != "" && !c.enterSubscription() {
		return c.fail(wire.CodeInvalidParams, tooManySubscriptions)
	}
	c.judge(policy.Resource, c.m.P.URI)
	return c.relay()
}

func (c *call) completeShadowed() wire.Pending {
	ref := c.m.P.Ref
	switch {
	case ref == nil:
		c.judge(policy.Prompt, "")
	case ref.Type == "ref/resource":
		c.judge(policy.Resource, ref.URI)
	default:
		c.judge(policy.Prompt, ref.Name)
	}
	return c.relay()
}

// judge notes what the policy says of a request about a name. A list that is not
// at hand is taken to have it.
func (c *call) judge(k policy.Kind, name string) {
	c.Kind, c.Name, c.Listed = k, name, true
	if conn := c.s.link.Live(); conn != nil {
		c.look(conn.Cached(surface.ListOf(k)))
	}
	c.Snapshot = c.s.run.Where()
	c.Verdict = c.Snapshot.Decide(&policy.Request{Kind: k, Name: name, Who: c.Who, Listed: c.Listed})
	if !c.Verdict.Bound {
		c.overlook(c.Verdict.Code)
	}
}
