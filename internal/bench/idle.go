package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// idleFigure is what something idle costs, over HTTP and on a shared upstream.
type idleFigure struct {
	build string
	kind  idleKind
	count int
	bytes float64 // each; NaN if unknown
	err   error
}

// idleKind is what is idle.
type idleKind int

const (
	idleSession    idleKind = iota // a session without a connection
	idleStream                     // a session with its GET stream open
	idleConnection                 // a connection without a session that sent as large a head as it may
)

func (k idleKind) String() string {
	return [...]string{"session", "session with its GET stream", "connection after a head of 28 KiB"}[k]
}

// target is the design's limit in bytes.
func (k idleKind) target() float64 { return [...]float64{5 << 10, 40 << 10, 24 << 10}[k] }

// idleGC makes the collector keep hardly any garbage, so that resident memory
// is what the sessions hold: live heap, stacks and the allocator's own, at most
// a tenth more. With the default setting a process may hold twice the heap.
const idleGC = "GOGC=10"

// measureIdle opens count of a kind, sessions of which each calls once and then
// stays idle, and reads how much anonymous memory the proxy has gained by them. A few
// sessions are opened before the first reading, so that what is paid once (the
// upstream's connection, pools) is not counted. The sessions' requests go
// over one connection, which is no session's cost; a GET stream has its own.
func measureIdle(ctx context.Context, b proxyBuild, s site, count int, kind idleKind) idleFigure {
	f := idleFigure{build: b.name, kind: kind, bytes: math.NaN()}
	s.path = httpToJSON
	upstream, err := startUpstream(s)
	if err != nil {
		f.err = err
		return f
	}
	defer upstream.stop()
	s.upstream = upstream
	proxy, err := b.start(ctx, s, []string{idleGC}, "--share-upstream")
	if err != nil {
		f.err = err
		return f
	}
	defer proxy.stop()
	idle := &idleSessions{addr: proxy.addr, call: newQuestion(askCall, cannedText(s.payload), false), kind: kind}
	defer idle.close()
	if f.count, f.bytes, err = idle.growth(ctx, proxy, count); err != nil {
		f.err = proxy.explain(err)
	}
	return f
}

// idleSessions are sessions that were used once.
type idleSessions struct {
	addr string
	call question
	kind idleKind

	busy   httpCaller    // a session that goes on calling
	front  httpCaller    // whose connection opens all sessions without a stream
	own    []*httpCaller // one for each that has a connection of its own
	opened int
}

// growth is the memory gained by count sessions, per session. If the proxy
// refuses some, those that it took are counted, and the refusal is returned
// along with the figure.
func (s *idleSessions) growth(ctx context.Context, proxy *running, count int) (int, float64, error) {
	s.busy = httpCaller{addr: s.addr, firstID: firstID}
	if err := errors.Join(s.busy.handshake(), s.open(count/10+1)); err != nil {
		return 0, math.NaN(), err
	}
	before, ok := s.settledMemory(ctx, proxy)
	from := s.opened
	refused := s.open(count)
	after, stillOK := s.settledMemory(ctx, proxy)
	taken := s.opened - from
	if !ok || !stillOK || taken == 0 {
		return taken, math.NaN(), errors.Join(refused, errors.New("reading the proxy's memory: not told by this system"))
	}
	return taken, float64(after-before) / float64(taken), refused
}

func (s *idleSessions) open(count int) error {
	for range count {
		if err := s.openOne(); err != nil {
			return fmt.Errorf("opening session %d: %w", s.opened+1, err)
		}
		s.opened++
	}
	return nil
}

func (s *idleSessions) openOne() error {
	c := &s.front
	if s.kind != idleSession {
		c = &httpCaller{}
		s.own = append(s.own, c)
	}
	if s.kind == idleConnection {
		c.addr = s.addr
		return c.sendHead(strings.Repeat("x", 28<<10))
	}
	c.addr, c.firstID, c.session = s.addr, firstID, ""
	if err := c.handshake(); err != nil {
		return err
	}
	if err := s.callOnce(c); err != nil {
		return err
	}
	if s.kind == idleStream {
		return c.openStream()
	}
	return nil
}

func (s *idleSessions) callOnce(c *httpCaller) error {
	request, idAt := c.request(s.call)
	return c.ask(request, idAt, s.call.want, time.Now().Add(10*time.Second))
}

// settledMemory makes the proxy allocate, so that it collects, and takes the
// least of its memory until that has stood still for a second.
func (s *idleSessions) settledMemory(ctx context.Context, proxy *running) (int64, bool) {
	least := int64(math.MaxInt64)
	for stable, tries := 0, 0; stable < 10 && tries < 100; tries++ {
		if s.makeGarbage(200) != nil || pause(ctx, 100*time.Millisecond) != nil {
			return 0, false
		}
		now, ok := anonymousMemory(proxy.process.cmd.Process.Pid)
		if !ok {
			return 0, false
		}
		if stable++; now < least {
			least, stable = now, 0
		}
	}
	return least, true
}

// makeGarbage calls over a session that is none of the idle ones.
func (s *idleSessions) makeGarbage(calls int) error {
	for range calls {
		if err := s.callOnce(&s.busy); err != nil {
			return fmt.Errorf("calling while sessions are idle: %w", err)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (s *idleSessions) close() {
	s.busy.hangUp()
	s.front.hangUp()
	for _, c := range s.own {
		c.hangUp()
	}
}
