package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// untilSignalled is a context that ends with the process's first signal: SIGINT,
// SIGTERM, 'fsm-proxy drain' or, if it has a terminal, SIGHUP. A second SIGINT or
// SIGTERM ends the process at once; the others are none of the two, as a terminal
// at times sends two hang-ups, and the kubelet a SIGTERM after its preStop hook.
func untilSignalled() context.Context {
	e := new(emergency)
	ctx, end := context.WithCancel(context.WithValue(context.Background(), emergencyKey{}, e))
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, drainSignal)
	if !signal.Ignored(syscall.SIGHUP) && hangsUp() { // nohup has it ignored
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		insisted := false
		for s := range signals {
			end()
			if s == syscall.SIGHUP || s == drainSignal {
				continue
			}
			if insisted {
				e.exit(s.(syscall.Signal))
			}
			insisted = true
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

// inEmergency has kill called before the process exits at once. kill must not
// wait for anything.
func inEmergency(ctx context.Context, kill func()) {
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
