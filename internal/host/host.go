// Package host is what fsm-proxy is to its operating system: how signals end
// it, what it reaps as the first process of a container, how its memory is
// collected, and what it may open.
package host

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Run runs work and returns its exit code. The context of work ends with the
// process's first SIGINT, SIGTERM or SIGHUP.
func Run(work func(context.Context) int) int {
	return reaping(func() int {
		go easeCollector() // only a listener waits for what it finds out
		// A write to a pipe that nobody reads any more fails like any other, in place of ending the process before
		// it has ended what it started.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		return work(untilSignalled())
	})
}
