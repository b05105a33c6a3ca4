package proxy

import (
	"errors"
	"fmt"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/settings"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// initialize opens the upstream with the client's own request, so that it sees
// the client that there is, and answers with the upstream's answer.
func (c *call) initialize() wire.Pending {
	s := c.s
	s.mu.Lock()
	again := s.opening || s.shown.Hello.Load() != nil
	s.opening = s.opening || !again
	s.mu.Unlock()
	if again {
		return c.fail(wire.CodeInvalidRequest, "the session is initialized already")
	}
	if code, refusal := s.p.keeps.Keep(&s.kept, surface.Initialize, c.m); refusal != "" {
		s.opened()
		return c.fail(code, refusal)
	}
	return c.later(c.open)
}

func (c *call) open() {
	s := c.s
	c.Snapshot = s.run.Where().As(c.Who)
	greeting := s.p.greets.Greet(c.m, c.Snapshot)
	opening, err := greeting.Opening()
	if err != nil {
		c.failed(wire.CodeInvalidParams, err.Error())
		return
	}
	over := c.seen.Waiting()
	conn, err := s.link.OpenFor(s, opening)
	over()
	if err != nil {
		c.refusedHello(err)
		return
	}
	c.welcome(greeting, conn.Server.InitializeResult(conn.Hello(), c.m))
}

// refusedHello answers an initialize that the upstream did not accept, with its
// own error if it sent one.
func (c *call) refusedHello(err error) {
	if err == link.ErrEnding {
		c.s.opened()
		c.tooLate()
		return
	}
	if said, ok := errors.AsType[*settings.HelloError](err); ok {
		if said.Answer.ErrorCode == wire.CodeURLElicitation && !c.s.run.Where().UpstreamMay().Permits("elicitation") {
			c.failed(wire.CodeInternal, "the server asks the user to visit a URL first, which the policy does not let it")
			return
		}
		c.s.opened() // before the answer, since the client may try again at once
		c.seen.Failed(observe.Fault{RPC: said.Answer.ErrorCode})
		c.answer(c.withID(said.Answer))
		return
	}
	c.seen.Failed(observe.Fault{Code: policy.UpstreamUnavailable})
	c.failed(wire.CodeInternal, "The upstream server is not available: "+err.Error())
}

func (c *call) failed(code int, text string) {
	c.s.log.Warn("initialize was refused", c.about("reason", text)...)
	c.s.opened()
	c.fail(code, text)
}

// welcome answers initialize with the upstream's own answer, less what is
// refused here.
func (c *call) welcome(greeting *surface.Greeting, m *wire.Message) {
	result, h, err := greeting.Welcome(m, c.s.policyNow())
	if err != nil {
		c.failed(wire.CodeInternal, err.Error())
		return
	}
	h.Operations, h.Begun = c.s.p.cfg.Telemetry.Operations(h.Version), deadline.Now()
	c.s.shown.Hello.Store(h)
	said := c.about("client", wire.Clip(h.Client), "protocol", h.Version, "surface", h.Surface.String())
	if c.s.peer.Remote != "" {
		said = append(said, "remote", c.s.peer.Remote)
	}
	c.s.log.Info("session begun", said...)
	if c.Snapshot.Shadow && !c.s.link.Shared() {
		c.answer(c.withID(m))
	} else {
		c.result(result)
	}
	c.s.opened()
}

// discover answers server/discover with what the upstream said of itself.
func (c *call) discover() wire.Pending {
	s := c.s
	return c.result(s.shown.Lasting(s.p.greets.Discovered(s.shown.Hello.Load(), s.p.cfg.Protocol.Spoken().Revisions(), c.Snapshot.Shadow, s.policyNow())))
}

// list answers a list request from the cached bytes.
func (c *call) list(k wire.ListKind) wire.Pending {
	h := c.s.shown.Hello.Load()
	if !h.Lists[k] && k == wire.Tools && (c.s.p.handles != nil && c.client.Stateless() || c.s.hasSignals()) {
		return c.show(catalogue.NoTools, k)
	}
	if !h.Lists[k] {
		return c.fail(wire.CodeMethodNotFound, "the upstream server offers no "+k.String())
	}
	if c.m.P.Cursor != "" {
		return c.fail(wire.CodeInvalidParams, "unknown cursor: the whole list comes in one page")
	}
	if v, ok := c.s.shown.AtHand(k); ok {
		return c.show(v, k)
	}
	return c.later(func() { c.listFetched(k) })
}

func (c *call) listFetched(k wire.ListKind) {
	conn, err := c.connect()
	var v catalogue.View
	if err == nil {
		over := c.seen.Waiting()
		v, err = c.s.shown.Fetch(conn, k)
		over()
	}
	if err != nil {
		c.unavailable(fmt.Errorf("listing %v: %w", k, c.s.p.drain.EndedBy(err)))
		return
	}
	c.show(v, k)
}

// show answers with a view as it looks to the client, where this process knows how that is.
func (c *call) show(v catalogue.View, k wire.ListKind) wire.Pending {
	if !c.s.run.Acts() {
		c.unavailable(link.ErrEnding)
		return nil
	}
	return c.result(c.s.shown.Show(k, v, c.who().Principal, c.Who))
}

// templates refuses what a finite automaton cannot bind.
func (c *call) templates() wire.Pending {
	if c.s.policyNow().Templates() == policy.TemplatesEmpty {
		return c.result(c.s.shown.Lasting([]byte(`{"resourceTemplates":[]}`)))
	}
	if c.opaquely() {
		return c.fail(wire.CodeMethodNotFound, "resource templates are not offered here. Use resources/list")
	}
	return c.fail(wire.CodeMethodNotFound, "resource templates are not offered: a policy binds concrete URIs. "+
		"Use resources/list; to answer this request with an empty list, set 'templates: empty' in the policy")
}
