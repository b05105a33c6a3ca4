package policy

import "fmt"

// Code says why a request was refused. The set is closed and is what clients
// see; most codes are decided here, the rest by the proxy, and they live in one
// place. The zero value, CodeNone, means something only beside Allowed: true.
type Code uint8

// The refusal codes.
const (
	CodeNone            Code = iota
	InvalidTransition        // bound in some other state
	UnknownAction            // bound in no state
	NotAvailable             // bound, but not offered now; also the one code of opaque refusals
	UnknownCase              // the splitting argument is missing, or no listed case
	Busy                     // the run's turn is taken and did not come free
	RunComplete              // the run has ended and does not begin again by itself
	ValidationFailed         // the arguments do not match the listed inputSchema
	OutcomeUnknown           // sent, no answer: it may have happened
	UpstreamUnavailable      // never sent, or refused by the upstream's transport
	DefinitionChanged        // the tool's definition differs from the pinned one
	TaskRunning              // a task started earlier still has the turn
	RunNotFound              // the handle names no run
	RunExpired               // the handle's run is over
	GuardFailed              // a condition does not hold, or cannot be evaluated
	LimitReached             // a limit is used up, or a register has no room
	ApprovalPending          // nobody has said yes or no yet: the same call again goes on with the same question
	ApprovalDenied           // somebody has said no, or nobody anything in time
	StoreUnavailable         // what is to be kept of it cannot be written
)

// codeTexts are each code as clients see it, and in words for an operator.
var codeTexts = [...]struct{ word, text string }{
	CodeNone:            {"", ""},
	InvalidTransition:   {"invalid_transition", "another state binds it, this one does not"},
	UnknownAction:       {"unknown_action", "no state binds it"},
	NotAvailable:        {"not_available", "it is bound, and not offered now: a reload took the run's state, the run began anew, or calls of it cannot say their run"},
	UnknownCase:         {"unknown_case", "the argument named by \"by\" is missing, or no listed case"},
	Busy:                {"busy", "another call had the run's turn, and kept it (--turn-timeout, --max-queue), or there are too many runs"},
	RunComplete:         {"run_complete", "the run is complete, and on_complete is stop"},
	ValidationFailed:    {"validation_failed", "its arguments do not fit the tool's inputSchema (validate)"},
	OutcomeUnknown:      {"outcome_unknown", "it was sent, and no answer came: it may have happened"},
	UpstreamUnavailable: {"upstream_unavailable", "it was not sent, or the upstream's transport turned it away"},
	DefinitionChanged:   {"definition_changed", "the tool is not what was locked (pin); look at it, then run fsm-proxy lock"},
	TaskRunning:         {"task_running", "a task has the run's turn until it ends"},
	RunNotFound:         {"run_not_found", "it names no run, or none that there is for its client"},
	RunExpired:          {"run_expired", "its run has ended"},
	GuardFailed:         {"guard_failed", "a condition (when) does not hold, or cannot be evaluated"},
	LimitReached:        {"limit_reached", "a limit (at_most) is used up, or a register has no room"},
	ApprovalPending:     {"approval_pending", "it waits for an approval (approve), and --approval-hold is over"},
	ApprovalDenied:      {"approval_denied", "an approval (approve) was refused, or not given in time"},
	StoreUnavailable:    {"store_unavailable", "it was not sent: the store (--store) cannot be written, or not within --store-timeout"},
}

// String returns the code as clients see it, "" for CodeNone.
func (c Code) String() string {
	if int(c) < len(codeTexts) {
		return codeTexts[c].word
	}
	return fmt.Sprintf("Code(%d)", uint8(c))
}

// Text returns the code in words, for an operator.
func (c Code) Text() string {
	if int(c) < len(codeTexts) {
		return codeTexts[c].text
	}
	return c.String()
}
