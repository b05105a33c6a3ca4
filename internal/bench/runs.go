package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bench/inprocess"
)

// runsFigure is what many live runs cost, each found by a handle.
type runsFigure struct {
	runs   int
	idle   float64 // bytes that a run holds which nobody has called in yet
	used   float64 // one that a call has stepped
	start  time.Duration
	one    callTimes // of calls in one and the same run
	all    callTimes // of calls in all of them, in no order
	failed error
}

// callTimes are those of calls one after the other.
type callTimes struct{ mean, p99, longest time.Duration }

// The design's limit for an idle run, and what finding one among many may add to a
// call.
const (
	maxIdleRun  = 1 << 10
	maxManyRuns = 2.0
)

// sweptEvery has runs looked through for expired ones while calls are measured:
// each sixteenth of it.
const sweptEvery = 32 * time.Second

// measureRuns begins count runs in one Proxy of this process, over a shared
// upstream that answers at once, steps each of them, and calls for a while: in one
// of them, then in all.
func measureRuns(ctx context.Context, count int, each time.Duration) runsFigure {
	defer allProcessors()()
	f := runsFigure{runs: count, idle: math.NaN(), used: math.NaN()}
	c, err := newCrowd(count)
	if err != nil {
		f.failed = err
		return f
	}
	defer c.Close()
	f.failed = c.measure(ctx, &f, each)
	return f
}

// crowd is many runs, and the one client of all.
type crowd struct {
	*inprocess.Crowd
	handles []string
}

func newCrowd(count int) (*crowd, error) {
	p, err := reloadTo(reloadPolicy)
	if err != nil {
		return nil, err
	}
	all, err := inprocess.NewCrowd(inprocess.Config{Policy: p, Runs: count, RunIdle: sweptEvery, Dial: newInstant})
	return &crowd{Crowd: all, handles: make([]string, 0, count)}, err
}

func (c *crowd) measure(ctx context.Context, f *runsFigure, each time.Duration) error {
	first, err := c.begin() // what is paid once is not counted
	if err != nil {
		return err
	}
	if err := c.Call(first, "echo"); err != nil {
		return err
	}
	empty := liveHeap()
	begun := time.Now()
	for range f.runs - 1 {
		if _, err := c.begin(); err != nil {
			return err
		}
	}
	f.start = time.Since(begun) / time.Duration(f.runs)
	f.idle = float64(liveHeap()-empty) / float64(f.runs)
	for _, id := range c.handles[1:] {
		if err := c.Call(id, "echo"); err != nil {
			return err
		}
	}
	f.used = float64(liveHeap()-empty) / float64(f.runs)
	f.one, err = c.callFor(ctx, each, func() string { return first })
	if err != nil {
		return err
	}
	f.all, err = c.callFor(ctx, each, func() string { return c.handles[rand.IntN(len(c.handles))] })
	return err
}

// begin begins a run.
func (c *crowd) begin() (id string, err error) {
	if id, err = c.Begin(); err == nil {
		c.handles = append(c.handles, id)
	}
	return id, err
}

// callFor calls one after the other for a while.
func (c *crowd) callFor(ctx context.Context, during time.Duration, which func() string) (callTimes, error) {
	runtime.GC()
	var took []time.Duration
	for begun := time.Now(); time.Since(begun) < during || len(took) == 0; {
		id, at := which(), time.Now()
		if err := errors.Join(ctx.Err(), c.Call(id, "tool_001")); err != nil {
			return callTimes{}, err
		}
		took = append(took, time.Since(at))
	}
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	slices.Sort(took)
	return callTimes{sum / time.Duration(len(took)), percentile(took, 99), took[len(took)-1]}, nil
}

// addRuns adds what many runs cost.
func (r *report) addRuns(t *table) {
	f := r.crowd
	if f == nil || f.failed != nil {
		return
	}
	add := func(what string, seen, target float64) {
		row := []string{runsSection, fsmProxy, what, number(seen), "–", "–"}
		if target > 0 {
			row[4], row[5] = targetText(target, false), verdict(seen, target, false)
		}
		t.add(append(row, make([]string, len(r.callers()))...)...)
	}
	many := thousands(int64(f.runs))
	add("bytes an idle run ("+many+")", f.idle, maxIdleRun)
	add("bytes a run that a call has stepped", f.used, 0)
	add("µs to begin a run", micros(f.start), 0)
	add("µs of a call, always in the same run (p99 "+number(micros(f.one.p99))+")", micros(f.one.mean), 0)
	add("µs of a call, in any of "+many+" (p99 "+number(micros(f.all.p99))+")", micros(f.all.mean), 0)
	add("a call in any ÷ in the same", float64(f.all.mean)/float64(f.one.mean), maxManyRuns)
	add("longest ms of a call, with runs looked through meanwhile", milliseconds(f.all.longest), milliseconds(maxHeldUp))
}
