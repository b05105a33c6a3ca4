// Package outcome is what has become of a call. It is pure.
package outcome

import (
	"errors"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
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

// Result is the result of an answer, nil where it is none.
func Result(m *wire.Message, err error) []byte {
	if err != nil || m.Kind != wire.Result {
		return nil
	}
	return m.Bytes(m.Result)
}
