package httpserver

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// listener gives net/http the connections of a listener, as far as there is room for them.
type listener struct {
	net.Listener
	srv *Server
}

const (
	// queueTime is how long what has connected before may still take to be accepted at the end: what a listener has
	// not accepted when it is closed is reset.
	queueTime = 20 * time.Millisecond
	// queueRounds is how often that time is given again, where somebody waits when it is over.
	queueRounds = 25
)

// Accept implements net.Listener. At the end it gives out what has connected before.
func (l *listener) Accept() (net.Conn, error) {
	for rounds := 0; ; {
		raw, err := l.Listener.Accept()
		switch ending := l.srv.closing.Load(); {
		case err == nil:
			if c := l.srv.accept(raw); c != nil {
				return c, nil
			}
		case ending:
			if rounds++; rounds == queueRounds || errors.Is(err, net.ErrClosed) || !waiting(l.Listener) || !l.extend() {
				return nil, net.ErrClosed
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				return nil, err // net/http tries again
			}
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			if !l.srv.evict() {
				return nil, err // likewise
			}
		default:
			return nil, err
		}
	}
}

// hangUp ends the listener when it has given out what has connected.
func (l *listener) hangUp() {
	if !l.extend() {
		l.Listener.Close()
	}
}

// extend has the listener give out what comes in queueTime. It reports whether it can.
func (l *listener) extend() bool {
	d, ok := l.Listener.(interface{ SetDeadline(time.Time) error })
	return ok && d.SetDeadline(time.Now().Add(queueTime)) == nil
}
