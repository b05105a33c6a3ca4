package proxy

import (
	"bytes"
	"encoding/json/v2"
	"errors"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// give answers with the upstream's answer.
func (c *call) give(m *wire.Message) wire.Pending {
	if told := c.outOfReach(m); told != nil {
		return c.answer(told)
	}
	if c.asksTooMuch(m) {
		return c.denyAsk(m)
	}
	if asked := c.client.Visit(c.m, m); asked != nil {
		return c.answer(asked)
	}
	raw := c.given(m)
	if m.Kind == wire.Failure {
		return c.answerFailure(c.code(m.ErrorCode), raw)
	}
	return c.answer(raw)
}

// given is the upstream's answer as the client gets it: under its own id, in its
// own way, with what is to be added of the run's state. Nothing else is touched.
func (c *call) given(m *wire.Message) []byte {
	if m.Kind == wire.Failure {
		return c.client.Failure(m, c.id(), c.code(m.ErrorCode))
	}
	annotate := c.annotates(m)
	if !annotate && !c.translates() || m.Raw[m.Result.Start] != '{' {
		return c.withID(m)
	}
	a := wire.Amend(m.Raw, m.Result)
	a.Add(wire.Edit{At: m.ID, With: c.id()})
	var names []string
	var values [][]byte
	if annotate {
		note := c.note()
		state, _ := json.Marshal(note)
		names, values = append(names, "fsm-proxy/state"), append(values, state)
		if c.s.shown.Hello.Load().Annotate == surface.AnnotateText && c.Kind == policy.Tool {
			a.Add(c.textEdit(m, note)...)
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
		c.s.shown.Hello.Load().Annotate != surface.AnnotateOff && !c.server.Meaning(c.m, m).Unfinished()
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

// noOutcome is the Outcome of a call that steps nothing: it never happened, or
// has not ended.
const noOutcome = policy.Outcome(0)

// errNoObject is an answer that says nothing of what became of its request.
var errNoObject = &wire.CallError{Sent: true, Err: errors.New("its result is no object")}

// errUnfitting is an answer that is neither the call's result nor anything that its
// upstream and its request let stand for it.
var errUnfitting = &wire.CallError{Sent: true, Err: errors.New("it looks like a task, or like a request for input, and is none that can be followed")}

// errTaskOfNoRun is a task that a call without a run was answered by: it would be
// anybody's who has its id.
var errTaskOfNoRun = &wire.CallError{Sent: true, Err: errors.New("it goes on as a task, and without a run nobody can follow one: give the call a run")}

// classify says what became of a call from its answer, or from why there is none.
func (c *call) classify(m *wire.Message, err error) policy.Outcome {
	switch {
	case err != nil:
		return classifyLost(err)
	case m.Kind == wire.Failure:
		return classifyFailure(m.ErrorCode)
	}
	switch meaning := c.server.Meaning(c.m, m); {
	case meaning.Unfinished():
		return noOutcome
	case meaning != bridge.Complete:
		return policy.Unknown
	case m.R.IsError:
		return policy.Error
	}
	return policy.Success
}

// classifyFailure tells the errors that say that nothing was done from those
// that are the work's own.
func classifyFailure(code int) policy.Outcome {
	switch code {
	case wire.CodeMethodNotFound, wire.CodeURLElicitation, wire.CodeHeaderMismatch, wire.CodeMissingCapability, wire.CodeUnsupportedVersion:
		return noOutcome
	}
	return policy.Error
}

// classifyLost classifies a request without an answer. What is not known to be
// harmless is unknown.
func classifyLost(err error) policy.Outcome {
	lost, ok := errors.AsType[*wire.CallError](err)
	if !ok {
		return policy.Unknown
	}
	switch lost.Status {
	case 400, 401, 403, 404, 405, 406, 413, 415, 429:
		return noOutcome
	}
	if !lost.Sent {
		return noOutcome
	}
	return policy.Unknown
}

// stateNote is what a result says of the run.
type stateNote struct {
	State            string   `json:"state"`
	Complete         bool     `json:"complete,omitzero"`
	Restarted        bool     `json:"restarted,omitzero"`
	ValidNextActions []string `json:"valid_next_actions"`
}

func (c *call) note() stateNote {
	at := c.s.run.Where()
	names := c.s.allowed(at).of(c.Kind)
	return stateNote{State: at.State(), Complete: at.At.Complete, Restarted: c.restarted, ValidNextActions: names}
}

// textEdit appends a text item to a tool's content.
func (c *call) textEdit(m *wire.Message, note stateNote) []wire.Edit {
	content := m.Bytes(m.R.Content)
	if len(content) == 0 || content[0] != '[' {
		return nil
	}
	text := "State is now '" + note.State + "'. Allowed now: " + some(note.ValidNextActions) + "."
	switch {
	case note.Restarted:
		text = "The run was completed and begins again. " + text
	case note.Complete:
		text = "The run is complete. " + c.s.run.Key.Renews()
	}
	with := append(wire.AppendString([]byte(`{"type":"text","text":`), text), '}')
	if len(bytes.TrimSpace(content[1:])) > 1 {
		with = append([]byte{','}, with...)
	}
	end := m.R.Content.End - 1
	return []wire.Edit{{At: wire.Span{Start: end, End: end}, With: with}}
}
