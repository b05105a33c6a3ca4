package upstream

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// reachTime is how long the answer to whether a URL's host takes connections is
// kept: probes come every few seconds, from several sides.
const reachTime = 2 * time.Second

// reach is what was found out last about a URL's host.
type reach struct {
	mu  sync.Mutex // guards what follows; held while it is found out
	at  time.Time
	err error
}

// Reachable reports why no connection could be made now, nil where one could, as
// far as can be known without making one: a command is not in the pause after
// starts that failed; the host of a URL takes TCP connections. No MCP is spoken.
func (s *Server) Reachable(ctx context.Context) error {
	if s.cfg.endpoint == nil {
		return s.pausing()
	}
	s.reach.mu.Lock()
	defer s.reach.mu.Unlock()
	if time.Since(s.reach.at) >= reachTime {
		s.reach.err = s.knock(ctx)
		s.reach.at = time.Now()
	}
	return s.reach.err
}

// pausing is why dials fail at once, nil where they do not.
func (s *Server) pausing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if time.Now().Before(s.blocked) {
		return s.cause
	}
	return nil
}

// knock makes a connection to the URL's host, and ends it.
func (s *Server) knock(ctx context.Context) error {
	address := s.cfg.endpoint.Host
	if s.cfg.endpoint.Port() == "" {
		address = net.JoinHostPort(s.cfg.endpoint.Hostname(), s.cfg.endpoint.Scheme)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w; is the server up?", address, err)
	}
	return conn.Close()
}
