package cli

import (
	"errors"
	"fmt"
	"io"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // a policy, a configuration or the run failed
	exitUsage  = 2 // the command line was wrong
)

// usageError is a command line that cannot be understood.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// errReported says that the command failed and has said why.
var errReported = errors.New("reported")

// report prints what run returned and turns it into the exit code.
func report(stderr io.Writer, err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFailed
	}
	fmt.Fprintf(stderr, "fsm-proxy: %v\n", err)
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}
