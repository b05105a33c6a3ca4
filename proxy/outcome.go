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

// errUnfitting is an answer that is neither the call's result nor anything that its
// era and its request let stand for it.
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
	case c.unfinished(m):
		return noOutcome
	case c.unfitting(m) || c.via == wire.Modern && !complete(m):
		return policy.Unknown
	case m.R.IsError:
		return policy.Error
	}
	return policy.Success
}

// complete reports whether a result of the modern era says that it is all that comes.
func complete(m *wire.Message) bool {
	return !m.R.ResultTypeAt.Present() || m.R.ResultType == wire.ResultComplete
}

// unfinished reports whether an answer is no result yet: it asks for input, or a task
// stands for it.
func (c *call) unfinished(m *wire.Message) bool {
	return c.wantsInput(m) || c.taskState(m) != nil
}

// wantsInput reports whether an answer asks the client for input, which only those of
// the modern era can.
func (c *call) wantsInput(m *wire.Message) bool {
	return c.via == wire.Modern && m.Kind == wire.Result && m.R.ResultType == wire.ResultInputRequired
}

// unfitting reports whether an answer merely looks unfinished: it is of the wrong era,
// or a task that was not asked for or has no id. Nothing could tell what becomes of it.
func (c *call) unfitting(m *wire.Message) bool {
	if m.Kind != wire.Result || c.unfinished(m) {
		return false
	}
	switch m.R.ResultType {
	case wire.ResultInputRequired, wire.ResultTask:
		return true
	}
	return m.R.Task.Present() && wire.Member(m.Bytes(m.Result), payload(c.Kind)) == nil
}

// payload is the member that every result of a call has.
func payload(k policy.Kind) string {
	switch k {
	case policy.Resource:
		return "contents"
	case policy.Prompt:
		return "messages"
	}
	return "content"
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
