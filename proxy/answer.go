package proxy

import (
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// give answers with the upstream's answer.
func (c *call) give(m *wire.Message) wire.Pending {
	meaning := c.server.Meaning(c.m, m)
	if m.Kind == wire.Failure || meaning != bridge.Complete || strings.HasPrefix(c.m.Method, "tasks/") {
		if rest, ok := c.s.p.routes.unfinished(c, m, meaning); ok {
			return rest
		}
	}
	raw := c.given(m, meaning)
	if m.Kind == wire.Failure {
		return c.answerFailure(c.code(m.ErrorCode), raw)
	}
	return c.answer(raw)
}

// given is the upstream's answer as the client gets it: under its own id, in its
// own way, with what is to be added of the run's state. Nothing else is touched.
func (c *call) given(m *wire.Message, meaning bridge.Meaning) []byte {
	if m.Kind == wire.Failure {
		return c.client.Failure(m, c.id(), c.code(m.ErrorCode))
	}
	annotate := !meaning.Unfinished() && c.annotates(m)
	if !annotate && !c.translates() || m.Raw[m.Result.Start] != '{' {
		return c.withID(m)
	}
	a := wire.Amend(m.Raw, m.Result)
	a.Add(wire.Edit{At: m.ID, With: c.id()})
	var names []string
	var values [][]byte
	if annotate {
		note := c.s.shown.Note(c.where(), c.Kind, c.restarted)
		names, values = append(names, "fsm-proxy/state"), append(values, note.JSON())
		if c.s.shown.Hello.Load().Annotate == surface.AnnotateText && c.Kind == policy.Tool {
			a.Add(note.Item(m, c.s.run.Renews())...)
		}
	}
	names, values = c.client.Complete(a, m, c.server, c.s.shown.Hello.Load().ServerInfo(), names, values)
	if c.client.Stateless() && c.reads() {
		c.freshness(m, a)
	}
	a.SetMeta(m.R.Meta, names, values)
	return a.Bytes()
}

// translates reports whether the result wants more for its client than the request's
// id.
func (c *call) translates() bool {
	return c.client.Amends(c.server) || c.client.Stateless() && c.reads()
}

// reads reports whether the call reads a resource.
func (c *call) reads() bool { return c.gated && c.Kind == policy.Resource }

// annotates reports whether something is added to a result of the run's state.
func (c *call) annotates(m *wire.Message) bool {
	return c.gated && !c.Snapshot.Shadow && !c.Snapshot.Runless && m.Kind == wire.Result && m.Raw[m.Result.Start] == '{' &&
		c.s.shown.Hello.Load().Annotate != surface.AnnotateOff
}

// freshness says how long what was read may be kept: not at all where reading it
// moves the run, or where it is not to be read in every state.
func (c *call) freshness(m *wire.Message, a *wire.Amendment) {
	if m.R.TTL.Present() && m.R.CacheScope.Present() && c.Snapshot.InForce().Steady(policy.Resource, c.Name, c.Listed) {
		return
	}
	a.Set(m.R.TTL, "ttlMs", []byte("0"))
	a.Set(m.R.CacheScope, "cacheScope", []byte(`"private"`))
}

// code is an upstream's error code as the client has it.
func (c *call) code(code int) int { return c.client.Code(code, c.server, c.reads()) }

// answerFailure answers with an error, whose code decides the status where the
// client's way says so.
func (c *call) answerFailure(code int, raw []byte) wire.Pending {
	if out := c.failing(); out != nil {
		return c.answerWith(func() { out.Fail(code, raw) }, raw)
	}
	return c.answer(raw)
}

// failing is the stream of a call on which an error's code decides the status, nil
// for one on which it does not.
func (c *call) failing() wire.FailingStream {
	if out, ok := c.out.(wire.FailingStream); ok && c.client.Stateless() {
		return out
	}
	return nil
}
