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
	UnknownCase              // the splitting argument is missing, no string, or no listed case
	Busy                     // the run's turn is taken and did not come free
	RunComplete              // the run has ended and does not begin again by itself
	ValidationFailed         // the arguments do not match the listed inputSchema
	OutcomeUnknown           // sent, no answer: it may have happened
	UpstreamUnavailable      // never sent, or refused by the upstream's transport
	DefinitionChanged        // the tool's definition differs from the pinned one
	TaskRunning              // a task started earlier still holds the run
	RunNotFound              // the handle names no run
	RunExpired               // the handle's run is over
)

var codeTexts = [...]string{
	CodeNone:            "",
	InvalidTransition:   "invalid_transition",
	UnknownAction:       "unknown_action",
	NotAvailable:        "not_available",
	UnknownCase:         "unknown_case",
	Busy:                "busy",
	RunComplete:         "run_complete",
	ValidationFailed:    "validation_failed",
	OutcomeUnknown:      "outcome_unknown",
	UpstreamUnavailable: "upstream_unavailable",
	DefinitionChanged:   "definition_changed",
	TaskRunning:         "task_running",
	RunNotFound:         "run_not_found",
	RunExpired:          "run_expired",
}

// String returns the code as clients see it, "" for CodeNone.
func (c Code) String() string {
	if int(c) < len(codeTexts) {
		return codeTexts[c]
	}
	return fmt.Sprintf("Code(%d)", uint8(c))
}
