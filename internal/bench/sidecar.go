package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// The design's limits for a sidecar.
const (
	maxSidecarMemory = 6 << 20
	maxAddedStart    = 15 * time.Millisecond
)

// sidecarFigure is what a build holds beside a server that nobody calls, and what it adds to the
// time that a stdio server takes to start.
type sidecarFigure struct {
	build  string
	memory float64 // bytes of anonymous memory; NaN if unknown
	added  time.Duration
	err    error
}

const (
	sidecarIdle   = 5 * time.Second // from its start to the reading of its memory
	sidecarStarts = 25              // of each, interleaved
)

// measureSidecars measures all builds, against the server alone and each other.
func measureSidecars(ctx context.Context, builds []proxyBuild, s site) []sidecarFigure {
	figures := make([]sidecarFigure, len(builds))
	starts := []subject{{direct, startDirect}}
	for i, b := range builds {
		figures[i] = sidecarFigure{build: b.name, memory: math.NaN()}
		figures[i].memory, figures[i].err = idleMemory(ctx, b, s)
		starts = append(starts, b.subject())
	}
	s.path = stdioToStdio
	took := make([][]time.Duration, len(starts))
	for range sidecarStarts {
		for i, subject := range starts {
			d, err := startOf(ctx, subject, s)
			if err != nil && i > 0 {
				figures[i-1].err = err
			}
			took[i] = append(took[i], d)
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	for i := range figures {
		figures[i].added = took[i+1][sidecarStarts/2] - took[0][sidecarStarts/2]
	}
	return figures
}

// idleMemory starts a build that listens before an HTTP server, and reads what it holds when it
// has been left alone.
func idleMemory(ctx context.Context, b proxyBuild, s site) (float64, error) {
	s.path = httpToJSON
	upstream, err := startUpstream(s)
	if err != nil {
		return math.NaN(), err
	}
	defer upstream.stop()
	s.upstream = upstream
	proxy, err := b.start(ctx, s, nil)
	if err != nil {
		return math.NaN(), err
	}
	defer proxy.stop()
	select {
	case <-time.After(sidecarIdle):
	case <-ctx.Done():
	}
	bytes, known := anonymousMemory(proxy.process.cmd.Process.Pid)
	if !known {
		return math.NaN(), fmt.Errorf("the system does not say how much memory a process has")
	}
	return float64(bytes), nil
}

// startOf is how long a subject takes from being started to its answer to initialize.
func startOf(ctx context.Context, subject subject, s site) (time.Duration, error) {
	begun := time.Now()
	running, err := subject.start(ctx, s)
	if err != nil {
		return 0, err
	}
	defer running.stop()
	if _, err := newStdioLoad(running.process.stdin, running.process.stdout, 1, s.modern); err != nil {
		return 0, running.explain(err)
	}
	return time.Since(begun), nil
}

// addSidecars adds the figures to the goals.
func (r *report) addSidecars(t *table) {
	for _, f := range r.sidecars {
		add := func(what string, seen, target float64) {
			row := []string{sidecarSection, f.build, what, number(seen), targetText(target, false), verdict(seen, target, false)}
			t.add(append(row, make([]string, len(r.callers()))...)...)
		}
		add("MiB of private memory, idle", f.memory/(1<<20), maxSidecarMemory/(1<<20))
		add("ms added to the start of a stdio server", milliseconds(f.added), milliseconds(maxAddedStart))
	}
}
