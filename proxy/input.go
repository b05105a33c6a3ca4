package proxy

import (
	"context"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/flight"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
)

// stream is where messages for the call's client go; asks tells that one is about a request of the upstream.
func (c *call) stream(asks bool) wire.Stream {
	if asks && c.client.Stateless() {
		return c.input()
	}
	if in := c.flight.Input(); in != nil {
		return in
	}
	return c.out
}

// Pause implements wire.Pauser: what the upstream does to its stream is done to the client's.
func (c *call) Pause(retry time.Duration) {
	if out, ok := c.stream(false).(wire.Pauser); ok {
		out.Pause(retry)
	}
}

// Answered implements bridge.Asker.
func (c *call) Answered(m *wire.Message) { c.s.asks.Answered(&c.s.p.asks, m) }

// MayAsk implements bridge.Asker and bridge.Caller.
func (c *call) MayAsk(method string) bool { return c.s.mayAsk(method) || c.s.run.Shadow() }

// Left implements bridge.Asker.
func (c *call) Left() {
	c.leavePipe() // its id is answered
	c.flight.Released()
}

// Abandon implements bridge.Asker.
func (c *call) Abandon() { c.flight.Cancel(nil) }

// Tell implements bridge.Asker.
func (c *call) Tell(text string, pairs ...any) {
	c.s.log.Warn(text, c.about(slices.Concat([]any{"method", wire.Clip(c.m.Method), c.Kind.String(), wire.Clip(c.Name)}, pairs)...)...)
}

// comeBack takes a request by which a client comes back to a call that has asked it.
func (c *call) comeBack() wire.Pending {
	if c.s.p.inputs.Return(c.party(), c) {
		return c.later(func() { c.flight.Over(context.Background()) })
	}
	if c.steps() && c.s.p.inputs.Elsewhere(c.m.P.RequestState) {
		return c.later(c.askedElsewhere)
	}
	return c.fail(wire.CodeInvalidParams, refusal.NotAsked)
}

// askedElsewhere answers a request by which a client comes back to a call of another process, such as this one before a restart.
func (c *call) askedElsewhere() {
	c.Kind, c.Name, _ = refusal.AskedFor(c.m)
	c.Snapshot = c.where()
	if conn, err := c.s.openFor(c.m); err == nil {
		c.s.knows(conn.Hello())
		_ = c.fetch(conn) // without its list the answer is one for a tool that has no schema
		c.fetchAll(conn)
	}
	c.s.log.Warn("a client came back to a call from before a restart, or of another process: its outcome is unknown", c.aboutTarget(nil, "state", c.Snapshot.State())...)
	c.interrupted(policy.OutcomeUnknown, refusal.Called(c.Kind, c.Name)+refusal.AskedElsewhere)
}

// AnswerBy implements bridge.Returning.
func (c *call) AnswerBy(give func()) { c.answerBy(give) }

// WaitsFor implements bridge.Returning.
func (c *call) WaitsFor(origin bridge.Asker) (cancelled bool) {
	c.flight.Update(func(f *flight.State) { f.Origin, cancelled = &origin.(*call).flight, f.Cancelled && !f.Awaited })
	return cancelled
}

// ours reports whether a request brings a state that the proxy has given out, or that looks like it where the upstream gives out none.
func (c *call) ours() bool {
	conn := c.s.link.Live()
	return c.s.p.inputs.Ours(c.m.P.RequestState, conn == nil || c.client.Amends(conn.Server))
}
