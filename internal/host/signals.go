package host

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
)

// echoTime is how long after the first signal another of its kind is taken for
// the same one: Ctrl-C reaches a whole group of processes, and npx and others
// that started this one pass theirs on, too.
const echoTime = time.Second

// untilSignalled returns a context that ends with the process's first signal: SIGINT,
// SIGTERM, 'fsm-proxy drain' or, if it has a terminal, SIGHUP. A second SIGINT or
// SIGTERM ends the process at once, unless it is an echo of the first; the others
// are none of the two, as a terminal at times sends two hang-ups, and the kubelet a
// SIGTERM after its preStop hook.
func untilSignalled() context.Context {
	e := new(emergency)
	ctx, end := context.WithCancel(context.WithValue(context.Background(), emergencyKey{}, e))
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, DrainSignal)
	if !signal.Ignored(syscall.SIGHUP) && HangsUp() { // nohup has it ignored
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		var first os.Signal
		var since time.Time
		for s := range signals {
			end()
			switch {
			case s == syscall.SIGHUP || s == DrainSignal:
			case first == nil:
				first, since = s, time.Now()
			case s != first || time.Since(since) > echoTime:
				e.exit(s.(syscall.Signal))
			}
		}
	}()
	return ctx
}

// emergency is what has to be done before the process exits at once, so that
// nothing that it started is left behind.
type emergency struct {
	mu    sync.Mutex
	kills []func() // guarded by mu
}

type emergencyKey struct{}

// InEmergency has kill called before the process exits at once. kill must not
// wait for anything.
func InEmergency(ctx context.Context, kill func()) {
	if e, ok := ctx.Value(emergencyKey{}).(*emergency); ok {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.kills = append(e.kills, kill)
	}
}

// exit ends the process as the signal would have, by what a shell makes of it:
// 130 for SIGINT, 143 for SIGTERM.
func (e *emergency) exit(s syscall.Signal) {
	e.mu.Lock()
	for _, kill := range e.kills {
		kill()
	}
	os.Exit(128 + int(s))
}

// HangsUp reports whether SIGHUP means that the terminal has gone, and so the
// end, and not the wish for a reload.
func HangsUp() bool { return IsTerminal(os.Stdin) || IsTerminal(os.Stdout) || IsTerminal(os.Stderr) }

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
