package upstream

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
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
// far as can be known without making one: a command is there and not in the pause
// after starts that failed; the host of a URL, or the HTTP proxy that the
// environment names for it, takes TCP connections. No MCP is spoken. The error
// tells nothing that a stranger should not read. It returns within 1 s.
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

// startable is why the command could not be started now.
func (s *Server) startable() error {
	if _, err := lookPath(s.cfg.Dir, s.cfg.Command[0]); err != nil {
		return fmt.Errorf("%q cannot be executed any more: %w", s.cfg.Command[0], bare(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if wait := time.Until(s.blocked); wait > 0 {
		return fmt.Errorf("%d starts in a row have failed, tried again in %s; the log says why", s.failures, wait.Round(10*time.Millisecond))
	}
	return nil
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
