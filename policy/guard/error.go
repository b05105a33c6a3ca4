package guard

import "fmt"

// A Reason says why an expression has no value.
type Reason uint8

const (
	NotEvaluable Reason = iota // a type that does not fit, what is missing or unset, what is no JSON, …
	UnclearKey                 // the arguments have a name twice, or one that looks like one that is read: -32600
	CostExceeded               // more work than an expression may be
	TooLarge                   // more bytes at the paths that are read than are decoded
)

// String returns the reason as a log shows it.
func (r Reason) String() string {
	switch r {
	case NotEvaluable:
		return "not evaluable"
	case UnclearKey:
		return "unclear key"
	case CostExceeded:
		return "cost exceeded"
	case TooLarge:
		return "too large"
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// An Error says why an expression has no value. Its message is for logs, never for a client: it may quote the
// expression and names in the arguments.
type Error struct {
	Reason  Reason
	message string
}

// Error implements error.
func (e *Error) Error() string { return e.Reason.String() + ": " + e.message }

func notEvaluable(format string, args ...any) *Error {
	return &Error{NotEvaluable, fmt.Sprintf(format, args...)}
}

func unclear(format string, args ...any) *Error {
	return &Error{UnclearKey, fmt.Sprintf(format, args...)}
}

var (
	errSyntax = &Error{NotEvaluable, "no valid JSON"}
	errDepth  = &Error{NotEvaluable, fmt.Sprintf("JSON nested deeper than %d", maxDepth)}
	errCost   = &Error{CostExceeded, fmt.Sprintf("more than %d units", maxCost)}
)
