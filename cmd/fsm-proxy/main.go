// Command fsm-proxy puts a state machine in front of any MCP server: a policy
// file says which tools, resources and prompts exist in which state, what may
// be called, and where each result leads.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/mattn/go-isatty"
)

func main() {
	easeCollector()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(report(os.Stderr, err))
}

// run executes one command line. ctx ends with the process's first SIGINT or
// SIGTERM. What it returns is not printed yet: see report.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	root := newRoot(&console{in: stdin, out: stdout, err: stderr})
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// console is where a command reads and writes.
type console struct {
	in       io.Reader
	out, err io.Writer
}

// isTerminal reports whether a stream of the console is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
