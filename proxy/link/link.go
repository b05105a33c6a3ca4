// Package link keeps a connection to the upstream: it is made when it is needed, and again after
// it was lost.
package link

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Config is what the links of a proxy have in common.
type Config struct {
	Dial    func(ctx context.Context, with bridge.Opening, r wire.Receiver) (bridge.Conn, error)
	Timeout time.Duration   // for a connection to come up
	Ending  context.Context // once it has ended no connection is made
	Log     hclog.Logger
}

// Link is a connection that is made when it is needed, and again after it was lost. It is safe
// for concurrent use.
type Link struct {
	Config *Config
	user   User
	ctx    context.Context // ends with the link
	stop   context.CancelFunc

	conn    atomic.Pointer[bridge.Upstream] // nil: there is none; each call reads it, and it is written under the lock
	mu      sync.Mutex                      // guards what follows
	dialing chan struct{}                   // closed when the dial under way has ended
	opening *bridge.Opening                 // nil before open
	ready   []byte                          // the client's notifications/initialized
	early   []func(*bridge.Upstream)        // what came from a connection not yet here
	lost    bool                            // there was a connection before
	closed  bool
}

// User is who uses a link. It receives what the connections send.
type User interface {
	wire.Receiver
	// Replay brings a new connection to where the last one was; again tells that there was one.
	Replay(conn *bridge.Upstream, again bool)
}

// ErrEnding is why no connection is made when the proxy is ending.
var ErrEnding = &wire.CallError{Err: errors.New("the proxy is ending")}

var errClosed = &wire.CallError{Err: errors.New("the session has ended")}

// Init makes the zero Link one without a connection.
func (l *Link) Init(c *Config, user User) {
	l.Config, l.user = c, user
	l.ctx, l.stop = context.WithCancel(context.Background())
}

// Live returns the connection if there is one, and never blocks.
func (l *Link) Live() *bridge.Upstream {
	if conn := l.conn.Load(); conn != nil && !Ended(conn) {
		return conn
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.liveLocked()
}

func (l *Link) liveLocked() *bridge.Upstream {
	conn := l.conn.Load()
	switch {
	case conn == nil:
		return nil
	case Ended(conn):
		l.conn.Store(nil)
		l.lost = true
		return nil
	}
	return conn
}

// Ended reports whether a connection has ended.
func Ended(conn *bridge.Upstream) bool {
	select {
	case <-conn.Done():
		return true
	default:
		return false
	}
}

// maxEarly bounds what waits for a connection that has not come up yet.
const maxEarly = 256

// With gives f the connection a message came on. While that is still coming up
// f waits for it; without one f is dropped.
func (l *Link) With(f func(*bridge.Upstream)) {
	l.mu.Lock()
	conn := l.liveLocked()
	if conn == nil && l.dialing != nil && len(l.early) < maxEarly {
		l.early = append(l.early, f)
	}
	l.mu.Unlock()
	if conn != nil {
		f(conn)
	}
}

// maxReady is how many bytes of a client's notifications/initialized are kept.
const maxReady = 4 << 10

// GreetBySelf has connections be told notifications/initialized by the proxy, where no client
// says it.
func (l *Link) GreetBySelf() { l.ready = wire.NotificationMessage("notifications/initialized", nil) }

// Initialized passes the client's notifications/initialized on, and keeps it
// for the connections to come, or where it is large one without params.
func (l *Link) Initialized(raw []byte) {
	l.mu.Lock()
	conn, first := l.liveLocked(), l.ready == nil
	if l.ready = raw; len(raw) > maxReady {
		l.ready = wire.NotificationMessage("notifications/initialized", nil)
	}
	l.mu.Unlock()
	if conn != nil && first {
		_ = conn.Notify(raw)
	}
}

// Open makes the first connection, with the client's introduction.
func (l *Link) Open(opening bridge.Opening) (*bridge.Upstream, error) {
	l.mu.Lock()
	l.opening = &opening
	l.mu.Unlock()
	return l.Get()
}

// Get returns the connection, and makes one if there is none: until the timeout it tries again
// what was not sent.
func (l *Link) Get() (*bridge.Upstream, error) {
	if conn := l.Live(); conn != nil {
		return conn, nil
	}
	if l.Config.Ending.Err() != nil {
		return nil, ErrEnding
	}
	ctx, stop := context.WithTimeout(l.ctx, l.Config.Timeout)
	defer stop()
	defer context.AfterFunc(l.Config.Ending, stop)()
	for told := false; ; {
		conn, err := l.dialOnce(ctx)
		if err == nil && conn != nil {
			return conn, nil
		}
		if err == nil {
			continue
		}
		switch {
		case l.Config.Ending.Err() != nil:
			return nil, ErrEnding
		case !again(ctx, err):
			return nil, err
		}
		if !told {
			told = true
			l.Config.Log.Warn("the upstream is not there: trying again", "for", l.Config.Timeout, "error", err)
		}
	}
}

// again waits until another attempt makes sense, and reports false where none
// does before ctx ends.
func again(ctx context.Context, err error) bool {
	retry, absent := wire.Absent(err)
	if end, _ := ctx.Deadline(); !absent || time.Until(end) < retry {
		return false
	}
	wait := time.NewTimer(retry)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// dialOnce dials, or waits for the dial under way; then there may be neither a
// connection nor an error, and the caller looks again.
func (l *Link) dialOnce(ctx context.Context) (*bridge.Upstream, error) {
	l.mu.Lock()
	if conn := l.liveLocked(); conn != nil || l.closed {
		l.mu.Unlock()
		if conn == nil {
			return nil, errClosed
		}
		return conn, nil
	}
	if dialing := l.dialing; dialing != nil {
		l.mu.Unlock()
		select {
		case <-dialing:
			return nil, nil
		case <-ctx.Done():
			return nil, &wire.CallError{Err: errors.New("it did not come up in time")}
		}
	}
	dialing := make(chan struct{})
	l.dialing = dialing
	opening, ready, again := l.opening, l.ready, l.lost
	l.mu.Unlock()
	conn, err := l.dial(ctx, opening, ready, again)
	l.settle(conn, dialing, ready != nil)
	return conn, err
}

// settle takes the outcome of a dial. ready tells that the connection has got
// notifications/initialized; one that came meanwhile goes out now.
func (l *Link) settle(conn *bridge.Upstream, dialing chan struct{}, ready bool) {
	l.mu.Lock()
	closed := l.closed
	if conn != nil && !closed {
		l.conn.Store(conn)
	}
	early, greeting := l.early, l.ready
	l.dialing, l.early = nil, nil
	close(dialing)
	l.mu.Unlock()
	switch {
	case conn == nil:
	case closed:
		conn.Close()
	default:
		if greeting != nil && !ready {
			_ = conn.Notify(greeting)
		}
		for _, f := range early {
			f(conn)
		}
	}
}

func (l *Link) dial(ctx context.Context, opening *bridge.Opening, ready []byte, again bool) (*bridge.Upstream, error) {
	if opening == nil {
		return nil, errClosed
	}
	dialled, err := l.Config.Dial(ctx, *opening, l.user)
	if err != nil {
		return nil, err
	}
	conn := bridge.NewUpstream(dialled, l.user)
	if ready != nil {
		_ = conn.Notify(ready)
	}
	l.user.Replay(conn, again)
	return conn, nil
}

// Close ends the connection, for good.
func (l *Link) Close() {
	l.stop()
	l.mu.Lock()
	conn := l.conn.Swap(nil)
	l.closed = true
	l.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}
