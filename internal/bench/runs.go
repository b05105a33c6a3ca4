package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/notify"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
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
	before := runtime.GOMAXPROCS(runtime.NumCPU())
	defer runtime.GOMAXPROCS(before)
	f := runsFigure{runs: count, idle: math.NaN(), used: math.NaN()}
	c, err := newCrowd(count)
	if err != nil {
		f.failed = err
		return f
	}
	defer c.proxy.Close()
	f.failed = c.measure(ctx, &f, each)
	return f
}

// crowd is a Proxy with many runs, and the one client of all.
type crowd struct {
	proxy   *proxy.Proxy
	handles []string
	answer  []byte
}

func newCrowd(count int) (*crowd, error) {
	p, err := reloadTo(reloadPolicy)
	if err != nil {
		return nil, err
	}
	c := &crowd{handles: make([]string, 0, count)}
	c.proxy, err = proxy.New(proxy.Config{
		Policy: p, Share: true, Annotate: surface.AnnotateOff, MaxRuns: count + 1, RunIdle: sweptEvery,
		Keys:     [2]runs.Key{wire.Modern: {Kind: runs.Handle}},
		Dial:     func(context.Context, bridge.Opening, wire.Receiver) (bridge.Conn, error) { return newInstant() },
		Notifier: func(send func(uint8) bool) surface.Notifier { return notify.New(send) },
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *crowd) measure(ctx context.Context, f *runsFigure, each time.Duration) error {
	first, err := c.begin() // what is paid once is not counted
	if err != nil {
		return err
	}
	if err := c.call(first, "echo"); err != nil {
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
		if err := c.call(id, "echo"); err != nil {
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
	if id, err = c.proxy.Runs.Start(bridge.Stateless, wire.Principal{}); err == nil {
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
		if err := errors.Join(ctx.Err(), c.call(id, "tool_001")); err != nil {
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

// call calls a tool in a run, and waits for the answer.
func (c *crowd) call(id, tool string) error {
	raw := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"` + handle.DefaultArgument + `":"` + id + `"},` +
		`"_meta":{"` + wire.MetaVersion + `":"` + wire.ModernRevision + `","` + wire.MetaCapabilities + `":{}}}}`
	m, err := wire.Read([]byte(raw), wire.FromClient)
	if err != nil {
		return err
	}
	c.answer = nil
	if rest := c.proxy.Serve(m, c, observe.Peer{}); rest != nil {
		rest.Wait()
	}
	if !strings.Contains(string(c.answer), `"result":`) || strings.Contains(string(c.answer), `"isError":true`) {
		return fmt.Errorf("calling %s in a run: answered %s", tool, c.answer)
	}
	return nil
}

// Send, Answer and Listening make the crowd the stream of its calls.
func (c *crowd) Send([]byte) bool  { return true }
func (c *crowd) Answer(raw []byte) { c.answer = raw }
func (c *crowd) Listening() bool   { return true }

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
