// Package cli is the command line of fsm-proxy: its commands and flags, and what
// they print.
package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/mattn/go-isatty"
)

// Main executes the command line that the process was given, and returns its exit
// code. stamped is the version of a release build, "" of any other.
func Main(stamped string) int {
	version = stamped
	return reaping(execute)
}

// execute runs the command line that the process was given, and returns its exit
// code.
func execute() int {
	easeCollector()
	// A write to a pipe that nobody reads any more fails like any other, in place of ending the process before
	// it has ended what it started.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return report(os.Stderr, run(untilSignalled(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line. ctx ends with the process's first SIGINT,
// SIGTERM or SIGHUP. What it returns is not printed yet: see report.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	root := newRoot(&console{in: stdin, out: stdout, err: stderr, args: args})
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// console is what a command was given, and where it reads and writes.
type console struct {
	args     []string // the command line, without the program
	in       io.Reader
	out, err io.Writer
}

// isTerminal reports whether a stream of the console is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
