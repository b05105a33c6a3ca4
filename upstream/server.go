// Package upstream makes connections to the wrapped MCP server and carries
// messages over them: to a child process, over Streamable HTTP, or over the old
// HTTP+SSE transport. A [Server] is what is wrapped, a [Conn] one connection to
// it: its calls, what it sends by itself, and snapshots of its lists.
//
// It speaks both eras of the protocol, and finds out which of them the server knows.
// In the modern one (2026-07-28) requests stand alone, headers repeat what is in them,
// and what belongs to no request comes by a subscription. It translates nothing and
// knows nothing of policies: what may be sent is decided before.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
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

// Dial opens a connection, introduces the client and returns when that is answered:
// by initialize, or by server/discover. Which of them it is, the server decides:
// what with prefers is tried first, and the other where the server does not know it. A
// server that does not speak what [Config.Protocol] fixes is an [*EraError].
// Dial does not send notifications/initialized: that is the caller's. Messages that
// the upstream sends before its answer reach r, too.
//
// The error is a [*wire.CallError] with Sent false where there is no connection,
// also for some time after failed dials (200 ms, doubling to 5 s). RetryAfter
// says how long, where another attempt makes sense: after a program that could
// not start, or a refusal, none does. The other error is an [*InitializeError] where the upstream
// refused.
func (s *Server) Dial(ctx context.Context, with Opening, r wire.Receiver) (*Conn, error) {
	if s.cfg.SSE && with.Initialize != nil {
		with.Discover = nil // of that transport there is no modern era
	}
	c, err := s.dial(ctx, with, r)
	if err != errDiedOfDiscovery {
		return c, err
	}
	<-c.gone // so that there is room for the next
	s.learn(wire.Modern, speaksNot)
	return s.dial(ctx, Opening{Initialize: with.Initialize}, r)
}

// dial is Dial of one connection. One that is over comes with errDiedOfDiscovery.
func (s *Server) dial(ctx context.Context, with Opening, r wire.Receiver) (*Conn, error) {
	c := newConn(s, r)
	bounded, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	if err := s.admit(bounded, c); err != nil {
		return nil, err
	}
	defer close(c.dialled)
	began := time.Now()
	defer context.AfterFunc(c.ctx, cancel)()
	err := s.connect(bounded, c, with)
	_, refused := errors.AsType[*InitializeError](err)
	if err != nil && !refused && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		err = c.timeoutError(time.Since(began))
	}
	s.settle(ctx, c, err)
	switch {
	case err == nil:
		return c, nil
	case err == errDiedOfDiscovery:
		return c, err
	case !refused:
		err = s.dialError(c, err)
	}
	c.end(err)
	return nil, err
}

// connect makes the link of a connection and introduces the client.
func (s *Server) connect(ctx context.Context, c *Conn, with Opening) error {
	switch {
	case s.cfg.endpoint == nil:
		c.link = newStdioLink(c)
	case s.cfg.SSE:
		c.link = newSSELink(c)
	default:
		c.link = newHTTPLink(c)
	}
	if err := c.link.open(ctx); err != nil {
		return err
	}
	if err := c.introduce(ctx, with); err != nil {
		return err
	}
	if err := c.checkEra(); err != nil {
		return err
	}
	return c.Err()
}

// admit enters a connection, unless it is too early or too many are there. Where one of these is ending, it waits for that:
// a session whose server has just ended would else be refused a server for its own.
func (s *Server) admit(ctx context.Context, c *Conn) error {
	for {
		gone, err := s.tryAdmit(c)
		if gone == nil {
			return err
		}
		select {
		case <-gone:
		case <-ctx.Done():
			return err
		}
	}
}

// tryAdmit is admit without waiting. The channel is not nil where there will be room when it is closed.
func (s *Server) tryAdmit(c *Conn) (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, &wire.CallError{Err: ErrClosed}
	}
	if wait := time.Until(s.blocked); wait > 0 {
		return nil, &wire.CallError{RetryAfter: wait, Err: fmt.Errorf("%w (tried again in %s)", s.cause, wait.Round(10*time.Millisecond))}
	}
	if s.cfg.Command != nil && s.processes >= s.cfg.MaxProcesses {
		full := &wire.CallError{Err: fmt.Errorf("there are as many processes of the server as there may be (--max-upstreams %d): end a session, "+
			"raise the limit, or have all clients share one process by --share-upstream", s.cfg.MaxProcesses)}
		for other := range s.conns {
			if other.Err() != nil {
				full.RetryAfter = s.cfg.MinBackoff
				return other.gone, full
			}
		}
		return nil, full
	}
	s.processes++
	s.wg.Add(1)
	s.conns[c] = struct{}{}
	return nil, nil
}

// settle keeps what became of an opening, and the back-off. Neither a refusal nor that the caller, whose ctx it
// is, gave up is the upstream's failure to be there.
func (s *Server) settle(ctx context.Context, c *Conn, err error) {
	_, refused := errors.AsType[*InitializeError](err)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		c.opened = answered
		s.failures = 0
		s.live++
	case err == errDiedOfDiscovery:
		c.opened = diedOfDiscovery
		s.failures = 0
	case refused:
		s.failures = 0
	case !errors.Is(ctx.Err(), context.Canceled):
		wait := min(s.cfg.MinBackoff<<min(s.failures, 20), s.cfg.MaxBackoff)
		s.failures++
		s.failed = time.Now()
		s.blocked = s.failed.Add(wait - rand.N(wait/4+1))
		s.cause = err
	}
}

// dialError words a failed dial: nothing of a call was sent. It says when to try again where nobody was there yet.
func (s *Server) dialError(c *Conn, err error) error {
	out := &wire.CallError{Err: err}
	if e, ok := errors.AsType[*wire.CallError](err); ok {
		out.Status, out.Err = e.Status, e.Err
		if e.Status == 0 && !e.Sent && s.cfg.endpoint != nil || e.Status == http.StatusBadGateway ||
			e.Status == http.StatusServiceUnavailable || e.Status == http.StatusGatewayTimeout {
			s.mu.Lock()
			out.RetryAfter = max(time.Until(s.blocked), time.Millisecond)
			s.mu.Unlock()
		}
	}
	if ended := c.Err(); ended != nil {
		out.Err = ended
	}
	out.Err = fmt.Errorf("connecting to the upstream %s: %w%s", s.cfg.String(), out.Err, s.cfg.urlHint(out.Status))
	return out
}

// dispose frees what a connection that has ended holds, in the background.
func (s *Server) dispose(c *Conn) {
	go func() {
		defer s.wg.Done()
		<-c.dialled
		c.link.close()
		c.wg.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
		s.processes--
		if c.opened == answered {
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

// Children returns how many child processes run.
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

const (
	// reachAge is how long the answer to whether a host takes connections is
	// kept: probes come every few seconds, from several sides.
	reachAge = 2 * time.Second
	// reachTime bounds the finding out. A kubelet waits for 1 s.
	reachTime = 800 * time.Millisecond
)

// reach is what was found out last about the host that connections are made to.
type reach struct {
	address string // host:port; set once

	mu  sync.Mutex // guards what follows; held while it is found out
	at  time.Time
	err error
}

// Reachable reports why no connection could be made now, nil where one could, as
// far as can be known without making one: a command is there, and its last starts have
// not all failed; the host of a URL, or the HTTP proxy that the environment names for
// it, takes TCP connections. The error tells nothing that a stranger should not read.
// It returns within 1 s. It takes no caller's context: what it finds out is kept for
// others, and must not be that somebody has hung up.
func (s *Server) Reachable() error {
	if s.cfg.endpoint == nil {
		return s.startable()
	}
	r := &s.reach
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < reachAge {
		return r.err
	}
	conn, err := net.DialTimeout("tcp", r.address, reachTime)
	if err != nil {
		r.err = fmt.Errorf("connecting to %s: %w; is the server up?", r.address, err)
	} else {
		r.err = conn.Close()
	}
	r.at = time.Now()
	return r.err
}

// fewStarts is how many starts must have failed in a row for the command to count as
// one that cannot be started: one alone can have had a reason of its own.
const fewStarts = 2

// startable returns why the command could not be started now. While a connection is open
// it counts as startable. Where starts have failed, startable has the command started for
// a trial, after a pause: what is not ready gets no calls that would start it.
func (s *Server) startable() error {
	if _, err := process.LookPath(s.cfg.Dir, s.cfg.Command[0]); err != nil {
		return fmt.Errorf("%q cannot be executed any more: %w", s.cfg.Command[0], err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.failures == 0 || s.live > 0:
		return nil
	}
	wait := time.Until(s.failed.Add(min(time.Second<<min(s.failures, 6), time.Minute)))
	if wait <= 0 && !s.trying && s.processes == 0 { // else a client's own start shows it
		s.trying = true
		s.wg.Go(s.try)
	}
	if s.failures < fewStarts {
		return nil
	}
	again := "it is being tried again"
	if wait > 0 {
		again = "it is tried again in " + max(wait.Round(time.Second), time.Second).String()
	}
	return fmt.Errorf("the last %d starts have failed: %s; %s; the log says more", s.failures, publicCause(s.cause), again)
}

// try starts the command, and ends it again once it has answered.
func (s *Server) try() {
	conn, err := s.Dial(context.Background(), s.cfg.Trial, discard{})
	if err == nil {
		s.cfg.Log.Info("the upstream process starts again")
		conn.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trying = false
}

// discard receives what a child sends that is started only for a trial, and drops it.
type discard struct{}

// Receive implements wire.Receiver.
func (discard) Receive(*wire.Message, any) {}

// publicCause says why a start failed, without what the child has said.
func publicCause(err error) string {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.status
	}
	if e, ok := errors.AsType[*TimeoutError](err); ok {
		public := *e
		public.Said = ""
		return public.Error()
	}
	return err.Error()
}

// reachAddress returns where connections to a server are made.
func reachAddress(endpoint *url.URL) string {
	via, err := http.ProxyFromEnvironment(&http.Request{URL: endpoint})
	if via != nil && err == nil {
		return hostPort(via)
	}
	return hostPort(endpoint)
}

// hostPort returns the address of a URL's host.
func hostPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	case u.Scheme == "socks5" || u.Scheme == "socks5h":
		port = "1080"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}
