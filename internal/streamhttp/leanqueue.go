package streamhttp

import (
	"net"
	"time"
)

const (
	// queueTime is how long what has connected before may still take to be
	// accepted at the end: what a listener has not accepted when it is closed is
	// reset.
	queueTime = 20 * time.Millisecond
	// queueRounds is how often that time is given again, where somebody waits when
	// it is over.
	queueRounds = 25
)

// hangUp ends a listener when it has given out what has connected.
func hangUp(l net.Listener) {
	if !extend(l) {
		l.Close()
	}
}

// extend has a listener give out what comes in queueTime. It reports whether it
// can.
func extend(l net.Listener) bool {
	d, ok := l.(interface{ SetDeadline(time.Time) error })
	return ok && d.SetDeadline(time.Now().Add(queueTime)) == nil
}
