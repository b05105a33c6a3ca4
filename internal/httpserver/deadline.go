package httpserver

import (
	"net"
	"sync"
	"time"
)

// deadline is the read deadline of a connection, which net/http moves several times for each request, mostly to later.
// What is set on the connection may be earlier: moving it away costs nothing, and when it passes all the same the reader
// asks moved. It is safe for concurrent use.
type deadline struct {
	mu        sync.Mutex // guards what follows
	want, set time.Time  // the deadline, and the one that is set; zero: none
}

// move changes the deadline.
func (d *deadline) move(c net.Conn, t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.want = t
	if t.IsZero() || !d.set.IsZero() && !t.Before(d.set) {
		return nil
	}
	d.set = t
	return c.SetReadDeadline(t)
}

// moved reports whether the deadline that has passed was moved to later, and sets the one that holds.
func (d *deadline) moved(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.want.IsZero() && !d.want.After(time.Now()) {
		return false
	}
	d.set = d.want
	return c.SetReadDeadline(d.want) == nil
}
