package mcptest

import (
	"net"
	"sync"
)

// Pipes is a listener within the process, for tests in a synctest bubble: what connects to it blocks durably.
type Pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewPipes returns a listener that somebody can connect to by Dial.
func NewPipes() *Pipes { return &Pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept implements net.Listener.
func (l *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Pipes) Close() error { l.once.Do(func() { close(l.done) }); return nil }

// Addr implements net.Listener.
func (l *Pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// Dial connects, once the connection is accepted.
func (l *Pipes) Dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
