package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/http1"
	"github.com/fsm-proxy/fsm-proxy/internal/process"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Server is the wrapped MCP server: it makes the connections. It is safe for
// concurrent use.
type Server struct {
	cfg       Config
	transport http1.RoundTripper // of HTTP upstreams
	auth      authorizer         // of HTTP upstreams; nil for none
	stats     counters
	reach     reach
	children  process.Set
	polls     atomic.Bool // see Polls

	mu        sync.Mutex // guards what follows
	conns     map[*Conn]struct{}
	processes int
	ending    int       // of them, those whose connection has ended
	live      int       // connections whose opening was answered
	failures  int       // dials in a row that failed
	failed    time.Time // when the last of them did
	blocked   time.Time // until then dials fail at once
	cause     error     // why the last dial failed
	trying    bool      // it is being found out whether the command starts again
	closed    bool
	eras      [2]known       // what was seen of the eras that it speaks
	wg        sync.WaitGroup // connections being disposed of
}

type counters struct{ noise, stray, stderr, silent atomic.Uint64 }

// Polls reports whether the upstream may end the stream of a request before its answer
// and have the client come back for that (2025-11-25, SEP-1699): it has answered a
// request with an event stream.
func (s *Server) Polls() bool { return s.polls.Load() }

func (s *Server) streamed() {
	if !s.polls.Load() { // or each call would write what all read
		s.polls.Store(true)
	}
}

// Stats counts what went wrong without anybody to be told.
type Stats struct {
	Noise  uint64 // what the upstream sent that is no message
	Stray  uint64 // answers and progress that belong to no call under way
	Stderr uint64 // lines on the child's standard error that were not logged
	Silent uint64 // children that were ended since they answered no ping
}

// Stats returns the counts so far, over all connections.
func (s *Server) Stats() Stats {
	return Stats{s.stats.noise.Load(), s.stats.stray.Load(), s.stats.stderr.Load(), s.stats.silent.Load()}
}

// InitializeError is an upstream that answered initialize, or server/discover in its
// place, with an error.
type InitializeError struct {
	// Answer is the upstream's answer: a Failure.
	Answer *wire.Message
	// Era tells which of the two was refused.
	Era wire.Era
}

// Error has the code alone: the rest is the upstream's to say, in Answer.
func (e *InitializeError) Error() string {
	method := "initialize"
	if e.Era == wire.Modern {
		method = "server/discover"
	}
	return fmt.Sprintf("the upstream refused %s with error %d", method, e.Answer.ErrorCode)
}

// New returns the wrapped server. Nothing is started or connected yet, but the
// command is looked up and the URL read: the error is one line that says what
// to do.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, conns: make(map[*Conn]struct{})}
	if cfg.endpoint != nil {
		s.transport = http1.New(cfg.endpoint)
		s.reach.address = reachAddress(cfg.endpoint)
	}
	var err error
	s.auth, err = newAuthorizer(&s.cfg)
	return s, err
}

// dial is Dial of one connection. One that is over comes with errDiedAsked.
func (s *Server) dial(ctx context.Context, with Opening, r wire.Receiver) (*Conn, error) {
	c := newConn(s, r)
	if err := s.admit(c); err != nil {
		return nil, err
	}
	defer close(c.dialled)
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	err := s.connect(bounded, c, with)
	if _, refused := errors.AsType[*InitializeError](err); err != nil && !refused && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		err = c.unanswered(time.Since(began))
	}
	s.settle(ctx, c, err)
	if err == errDiedAsked {
		c.diedAsked = true
		return c, err
	}
	if err != nil {
		err = s.dialError(c, err)
		c.end(err)
		return nil, err
	}
	return c, nil
}

// connect makes the link of a connection and introduces the client.
func (s *Server) connect(ctx context.Context, c *Conn, with Opening) error {
	c.link = s.newLink(c)
	if err := c.link.open(ctx); err != nil {
		return err
	}
	if err := c.greet(ctx, with); err != nil {
		return err
	}
	if err := c.checkEra(); err != nil {
		return err
	}
	return c.Err()
}

func (s *Server) newLink(c *Conn) link {
	switch {
	case s.cfg.endpoint == nil:
		return newStdioLink(c)
	case s.cfg.SSE:
		return newSSELink(c)
	}
	return newHTTPLink(c)
}

// admit enters a connection, unless it is too early or too many are there.
func (s *Server) admit(c *Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &wire.CallError{Err: ErrClosed}
	}
	if wait := time.Until(s.blocked); wait > 0 {
		return &wire.CallError{RetryAfter: wait, Err: fmt.Errorf("%w (tried again in %s)", s.cause, wait.Round(10*time.Millisecond))}
	}
	if s.cfg.Command != nil && s.processes >= s.cfg.MaxProcesses {
		full := &wire.CallError{Err: fmt.Errorf("there are as many processes of the server as there may be (--max-upstreams %d): end a session, "+
			"raise the limit, or have all clients share one process by --share-upstream", s.cfg.MaxProcesses)}
		if s.ending > 0 { // there will be room
			full.RetryAfter = s.cfg.MinBackoff
		}
		return full
	}
	s.processes++
	s.wg.Add(1)
	s.conns[c] = struct{}{}
	return nil
}

// settle keeps the back-off. Neither a refusal nor that the caller, whose ctx it
// is, gave up is the upstream's failure to be there.
func (s *Server) settle(ctx context.Context, c *Conn, err error) {
	_, refused := errors.AsType[*InitializeError](err)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.failures, c.live = 0, true
		s.live++
	case refused, err == errDiedAsked:
		s.failures = 0
	case !errors.Is(ctx.Err(), context.Canceled):
		wait := min(s.cfg.MinBackoff<<min(s.failures, 20), s.cfg.MaxBackoff)
		s.failures++
		s.failed = time.Now()
		s.blocked = s.failed.Add(wait - rand.N(wait/4+1))
		s.cause = err
	}
}

// dialError words a failed dial: nothing of a call was sent.
func (s *Server) dialError(c *Conn, err error) error {
	if _, refused := errors.AsType[*InitializeError](err); refused {
		return err
	}
	out := &wire.CallError{Err: err}
	if e, ok := errors.AsType[*wire.CallError](err); ok {
		out.Status, out.Err = e.Status, e.Err
		if s.away(e) {
			out.RetryAfter = s.pause()
		}
	}
	if ended := c.Err(); ended != nil {
		out.Err = ended
	}
	out.Err = fmt.Errorf("connecting to the upstream %s: %w%s", s.cfg.String(), out.Err, s.cfg.urlHint(out.Status))
	return out
}

// away reports whether a failed dial over HTTP found nobody there yet.
func (s *Server) away(e *wire.CallError) bool {
	switch e.Status {
	case 0:
		return s.cfg.endpoint != nil && !e.Sent
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// pause is how long the back-off still lasts, a moment at least.
func (s *Server) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(time.Until(s.blocked), time.Millisecond)
}

// ended disposes of a connection in the background.
func (s *Server) ended(c *Conn) {
	s.mu.Lock()
	s.ending++
	s.mu.Unlock()
	go func() {
		defer s.wg.Done()
		c.dispose()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
		s.processes--
		s.ending--
		if c.live {
			s.live--
		}
		close(c.gone)
	}()
}

// String names what is wrapped for people, without arguments and query, which
// may hold secrets.
func (s *Server) String() string { return s.cfg.String() }

// Close ends all connections, the children with their process groups included,
// and waits for that: twice [Config.Grace] and a little at most.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.children.Close()
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	s.wg.Wait()
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
	if s.auth != nil {
		s.auth.close()
	}
}

// Children is how many child processes run.
func (s *Server) Children() int { return s.children.Len() }

// LastStderr returns the last line that a child has written to its standard error, "" for
// none. Where there are several children it is that of any of them: it is for who waits
// for the only one.
func (s *Server) LastStderr() string { return s.children.LastLine() }

// Kill ends all children at once, with their process groups, and has no more
// started. It waits for nothing: it is for a process that is about to exit.
func (s *Server) Kill() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.children.Kill()
}
