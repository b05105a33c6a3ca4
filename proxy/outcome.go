package proxy

import (
	"errors"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// noOutcome is the Outcome of a call that steps nothing: it never happened, or
// has not ended.
const noOutcome = policy.Outcome(0)

// errNoObject is an answer that says nothing of what became of its request.
var errNoObject = &wire.CallError{Sent: true, Err: errors.New("its result is no object")}

// classify says what became of a request from its answer, or from why there is
// none.
func classify(m *wire.Message, err error) policy.Outcome {
	switch {
	case err != nil:
		return classifyLost(err)
	case m.Kind == wire.Failure:
		return classifyFailure(m.ErrorCode)
	case pending(m):
		return noOutcome
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
