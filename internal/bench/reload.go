package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bench/inprocess"
	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/notify"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// reloadFigure is what a reload of one kind costs under a number of live runs.
type reloadFigure struct {
	what    string
	runs    int
	took    time.Duration // until every run has moved, and whoever is to be told was
	longest time.Duration // that a call of another session took meanwhile
	p99     time.Duration // of those calls
	err     error
}

// The design's limit for a reload, and what a call may be held up by one.
const (
	maxReload = time.Second
	maxHeldUp = 50 * time.Millisecond
)

// reloadPolicy is what the runs are under at first; they rest in its second
// state.
const reloadPolicy = `version: 1
initial: first
everywhere: {tools: [tool_001, tool_002]}
states:
  first: {tools: {echo: second}}
  second: {tools: {echo: first, tool_003: }}
`

// reloads are policies that follow one another, each a reload of its kind.
func reloads() []reloadStep {
	more := strings.Replace(reloadPolicy, "tool_003:", "tool_003: , tool_004:", 1)
	renamed := strings.ReplaceAll(more, "second", "other")
	return []reloadStep{
		{"nothing shown changes", reloadPolicy + "x-a: 1\n", false},
		{"every list changes", more, true},
		{"their state is renamed", "renamed: {second: other}\n" + renamed, false},
		{"all begin anew", "stranded: restart\n" + strings.ReplaceAll(renamed, "other", "last"), true},
	}
}

type reloadStep struct {
	what, source string
	tells        bool // every session is told that its tools have changed
}

// measureReload opens count sessions in one Proxy of this process, over a shared
// upstream that answers at once, brings the run of each into its second state,
// and reloads. bytes is what a session holds with its run, lists and all.
func measureReload(ctx context.Context, count int) (figures []reloadFigure, bytes float64) {
	defer allProcessors()()
	h, err := newHall(count)
	if err != nil {
		return []reloadFigure{{what: "opening sessions", runs: count, err: err}}, math.NaN()
	}
	defer h.proxy.Close()
	for _, step := range reloads() {
		figures = append(figures, h.reload(ctx, step))
	}
	return figures, h.bytes
}

// hall is a Proxy with many sessions, and one more that goes on calling.
type hall struct {
	proxy    *proxy.Proxy
	sessions []*guest
	caller   *guest
	bytes    float64
	told     atomic.Int64
}

func newHall(count int) (*hall, error) {
	p, err := reloadTo(reloadPolicy)
	if err != nil {
		return nil, err
	}
	h := &hall{}
	h.proxy, err = proxy.New(proxy.Config{
		Policy: p, Share: true,
		Dial:     func(context.Context, bridge.Opening, wire.Receiver) (bridge.Conn, error) { return newInstant() },
		Notifier: func(send func(uint8) bool) surface.Notifier { return notify.New(send) },
	})
	if err != nil {
		return nil, err
	}
	if h.caller, err = h.enter(new(atomic.Int64)); err != nil {
		return nil, err
	}
	empty := liveHeap()
	for range count {
		g, err := h.enter(&h.told)
		if err != nil {
			return nil, err
		}
		h.sessions = append(h.sessions, g)
	}
	h.bytes = float64(liveHeap()-empty) / float64(count)
	return h, nil
}

// liveHeap is what is reachable, in bytes.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func reloadTo(source string) (*policy.Policy, error) {
	p, findings := policy.Parse("bench.yaml", []byte(source))
	return p, findings.Err()
}

// enter opens a session that lists its tools and takes one step.
func (h *hall) enter(told *atomic.Int64) (*guest, error) {
	g := &guest{told: told}
	g.session = h.proxy.Open(g)
	for _, request := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + latestLegacy + `","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo"}}`,
	} {
		if err := g.ask(request); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// reload puts a policy in force and measures.
func (h *hall) reload(ctx context.Context, step reloadStep) reloadFigure {
	f := reloadFigure{what: step.what, runs: len(h.sessions)}
	p, err := reloadTo(step.source)
	if err != nil {
		f.err = err
		return f
	}
	runtime.GC() // what was before is not counted
	h.told.Store(0)
	calls := h.callOn()
	begun := time.Now()
	done := h.proxy.Reload(p)
	for want := h.due(step); h.told.Load() < want && ctx.Err() == nil; {
		runtime.Gosched()
	}
	f.took = time.Since(begun)
	f.longest, f.p99, f.err = calls()
	if got := done.Moved + done.Restarted + done.Waiting; got != len(h.sessions)+1 {
		f.err = errors.Join(f.err, fmt.Errorf("%d of %d runs have moved: %+v", got, len(h.sessions)+1, done))
	}
	if told := h.told.Load(); told > h.due(step) {
		f.err = errors.Join(f.err, fmt.Errorf("%d sessions were told", told))
	}
	f.err = errors.Join(f.err, ctx.Err())
	return f
}

// due is how many are to be told.
func (h *hall) due(step reloadStep) int64 {
	if !step.tells {
		return 0
	}
	return int64(len(h.sessions))
}

// callOn has the caller call until stop, which returns the longest time that a
// call took, and the 99th percentile.
func (h *hall) callOn() (stop func() (longest, p99 time.Duration, err error)) {
	end, took, failed := make(chan struct{}), []time.Duration(nil), error(nil)
	over, begun := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for failed == nil {
			at := time.Now()
			failed = h.caller.ask(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"tool_001"}}`)
			if took = append(took, time.Since(at)); len(took) == 1 {
				close(begun)
			}
			select {
			case <-end:
				return
			default:
			}
		}
	}()
	<-begun
	return func() (time.Duration, time.Duration, error) {
		close(end)
		<-over
		slices.Sort(took)
		return took[len(took)-1], took[len(took)*99/100], failed
	}
}

// guest is one session's client, which counts what it is told.
type guest struct {
	told    *atomic.Int64 // that of the hall; the caller has its own
	session wire.Session
	answer  []byte
}

// ask sends a request and waits for its answer.
func (g *guest) ask(raw string) error {
	m, err := wire.Read([]byte(raw), wire.FromClient)
	if err != nil {
		return err
	}
	if rest := g.session.Handle(m, (*desk)(g)); rest != nil {
		rest.Wait()
	}
	if !strings.Contains(string(g.answer), `"result":`) || strings.Contains(string(g.answer), `"isError":true`) {
		return fmt.Errorf("asking %s: answered %s", raw, g.answer)
	}
	g.answer = nil
	return nil
}

// Send, Answer and Listening make the guest its session's own stream.
func (g *guest) Send([]byte) bool {
	g.told.Add(1)
	return true
}

func (g *guest) Answer([]byte)   {}
func (g *guest) Listening() bool { return true }

// desk is the stream of one of a guest's requests, which is told there of what
// that changes.
type desk guest

func (d *desk) Send([]byte) bool  { return true }
func (d *desk) Answer(raw []byte) { d.answer = raw }
func (d *desk) Listening() bool   { return true }

// newInstant returns an upstream that answers at once what the canned one does.
func newInstant() (bridge.Conn, error) {
	canned := newCanned(cannedText(32), false)
	return inprocess.NewUpstream(canned.list, canned.call)
}
