// Package outcome is what has become of a call, and what a result says of its run then. It is
// pure.
package outcome

import (
	"bytes"
	"errors"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
)

// None is the Outcome of a call that steps nothing: it never happened, or has not ended.
const None = policy.Outcome(0)

// ErrNoObject is an answer that says nothing of what became of its request.
var ErrNoObject = &wire.CallError{Sent: true, Err: errors.New("its result is no object")}

// ErrUnfitting is an answer that is neither the call's result nor anything that its
// upstream and its request let stand for it.
var ErrUnfitting = &wire.CallError{Sent: true, Err: errors.New("it looks like a task, or like a request for input, and is none that can be followed")}

// ErrTaskOfNoRun is a task that a call without a run was answered by: it would be
// anybody's who has its id.
var ErrTaskOfNoRun = &wire.CallError{Sent: true, Err: errors.New("it goes on as a task, and without a run nobody can follow one: give the call a run")}

// Of says what became of a call from its answer and the meaning of that, or from why there is
// none.
func Of(m *wire.Message, meaning bridge.Meaning, err error) policy.Outcome {
	switch {
	case err != nil:
		return ofLost(err)
	case m.Kind == wire.Failure:
		return ofFailure(m.ErrorCode)
	case meaning.Unfinished():
		return None
	case meaning != bridge.Complete:
		return policy.Unknown
	case m.R.IsError:
		return policy.Error
	}
	return policy.Success
}

// ofFailure tells the errors that say that nothing was done from those
// that are the work's own.
func ofFailure(code int) policy.Outcome {
	switch code {
	case wire.CodeMethodNotFound, wire.CodeURLElicitation, wire.CodeHeaderMismatch, wire.CodeMissingCapability, wire.CodeUnsupportedVersion:
		return None
	}
	return policy.Error
}

// ofLost says what became of a request without an answer. What is not known to be
// harmless is unknown.
func ofLost(err error) policy.Outcome {
	lost, ok := errors.AsType[*wire.CallError](err)
	if !ok {
		return policy.Unknown
	}
	switch lost.Status {
	case 400, 401, 403, 404, 405, 406, 413, 415, 429:
		return None
	}
	if !lost.Sent {
		return None
	}
	return policy.Unknown
}

// Note is what a result says of the run.
type Note struct {
	State            string   `json:"state"`
	Complete         bool     `json:"complete,omitzero"`
	Restarted        bool     `json:"restarted,omitzero"`
	ValidNextActions []string `json:"valid_next_actions"`
}

// Text appends the note as a text item to a tool's content. renews is how a run that is complete
// is followed by another.
func (n Note) Text(m *wire.Message, renews string) []wire.Edit {
	content := m.Bytes(m.R.Content)
	if len(content) == 0 || content[0] != '[' {
		return nil
	}
	text := "State is now '" + n.State + "'. Allowed now: " + refusal.Some(n.ValidNextActions) + "."
	switch {
	case n.Restarted:
		text = "The run was completed and begins again. " + text
	case n.Complete:
		text = "The run is complete. " + renews
	}
	with := append(wire.AppendString([]byte(`{"type":"text","text":`), text), '}')
	if len(bytes.TrimSpace(content[1:])) > 1 {
		with = append([]byte{','}, with...)
	}
	end := m.R.Content.End - 1
	return []wire.Edit{{At: wire.Span{Start: end, End: end}, With: with}}
}
