// Package exit is how fsm-proxy ends: its exit codes, and what is printed before.
package exit

import (
	"errors"
	"fmt"
	"io"
)

// The exit codes.
const (
	OK     = 0
	Failed = 1 // a policy, a configuration or the run failed
	Usage  = 2 // the command line was wrong
)

// usageError is a command line, or a configuration, that cannot be meant.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usagef returns an error that ends the process with Usage. It names settings
// as their flags.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// ErrReported says that the command failed and has said why.
var ErrReported = errors.New("reported")

// Report prints what a command returned and turns it into the exit code.
func Report(stderr io.Writer, err error) int {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, ErrReported):
		return Failed
	}
	fmt.Fprintf(stderr, "fsm-proxy: %v\n", err)
	if errors.As(err, new(usageError)) {
		return Usage
	}
	return Failed
}
