package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/process"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

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
// It returns within 1 s.
func (s *Server) Reachable() error {
	if s.cfg.endpoint == nil {
		return s.startable()
	}
	r := &s.reach
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) >= reachAge {
		r.err = knock(r.address)
		r.at = time.Now()
	}
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
		return (&TimeoutError{Asked: e.Asked, Waited: e.Waited, Process: e.Process}).Error()
	}
	return err.Error()
}

// knock makes a TCP connection, and ends it. It takes no caller's context: what
// it finds out is kept for others, and must not be that somebody has hung up.
func knock(address string) error {
	ctx, stop := context.WithTimeout(context.Background(), reachTime)
	defer stop()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w; is the server up?", address, err)
	}
	return conn.Close()
}

// reachAddress is where connections to a server are made.
func reachAddress(endpoint *url.URL) string {
	via, err := http.ProxyFromEnvironment(&http.Request{URL: endpoint})
	if via != nil && err == nil {
		return hostPort(via)
	}
	return hostPort(endpoint)
}

// hostPort is the address of a URL's host.
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
