//go:build long && unix

package runs

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// A way is what a line does with what comes.
type way int

const (
	through way = iota
	cut         // each connection is reset, a new one, too
	held        // nothing comes through, and nobody is told; once that is over what was held comes
)

// line is a way over TCP to an address, which a test cuts and slows, and on which it looks at what goes to there.
type line struct {
	address string // where it begins
	to      string

	mu      sync.Mutex // guards what follows
	way     way
	turned  chan struct{} // is closed, and made anew, when way changes
	delay   time.Duration // of what comes back
	alter   func(p []byte) []byte
	sent    [][]byte // what has gone there over each connection, where it is kept
	keeps   bool
	open    map[*net.TCPConn]bool
	ended   bool
	running sync.WaitGroup
}

// newLine begins a line to an address. It ends with the test.
func newLine(t *testing.T, to string) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{address: listener.Addr().String(), to: to, turned: make(chan struct{}), open: map[*net.TCPConn]bool{}}
	l.running.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			l.running.Go(func() { l.carry(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		l.turn(cut, true)
		l.running.Wait()
	})
	return l
}

// turn goes another way from now on.
func (l *line) turn(to way, ends bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.way, l.ended = to, l.ended || ends
	close(l.turned)
	l.turned = make(chan struct{})
	if to == cut {
		for c := range l.open {
			reset(c)
		}
	}
}

func (l *line) cut()  { l.turn(cut, false) }
func (l *line) hold() { l.turn(held, false) }
func (l *line) mend() { l.turn(through, false); l.slow(0) }

// silence has no connection come about: those that there are are reset, and new ones hear nothing.
func (l *line) silence() { l.cut(); l.hold() }

// slow has all that comes back come so much later.
func (l *line) slow(by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = by
}

// alters has what goes there be what alter returns; nil: as it is.
func (l *line) alters(alter func(p []byte) []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alter = alter
}

// records keeps what goes there from now on over new connections.
func (l *line) records() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keeps = true
}

// recorded is what has gone there, by connections.
func (l *line) recorded() (all [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.sent {
		all = append(all, bytes.Clone(one))
	}
	return all
}

// reset ends a connection as by a fault.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // it may be closed already
	c.Close()
}

// opens notes a connection, unless the line is cut.
func (l *line) opens(c *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.way == cut {
		reset(c)
		return false
	}
	l.open[c] = true
	return true
}

func (l *line) closes(c *net.TCPConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	c.Close()
}

// waits returns once something may come through; false: it never will.
func (l *line) waits() bool {
	for {
		l.mu.Lock()
		now, turned, ended := l.way, l.turned, l.ended
		l.mu.Unlock()
		if now != held || ended {
			return now == through
		}
		<-turned
	}
}

// carry serves a connection.
func (l *line) carry(from *net.TCPConn) {
	if !l.opens(from) {
		return
	}
	defer l.closes(from)
	if !l.waits() {
		return
	}
	c, err := net.Dial("tcp", l.to)
	if err != nil {
		reset(from)
		return
	}
	to := c.(*net.TCPConn)
	if !l.opens(to) {
		return
	}
	defer l.closes(to)
	l.mu.Lock()
	kept := -1
	if l.keeps {
		kept, l.sent = len(l.sent), append(l.sent, nil)
	}
	l.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() {
		l.pump(to, from, func(p []byte) []byte {
			l.mu.Lock()
			delay := l.delay
			l.mu.Unlock()
			if delay > 0 {
				<-time.After(delay) // which is the fault
			}
			return p
		})
	})
	l.pump(from, to, func(p []byte) []byte {
		l.mu.Lock()
		defer l.mu.Unlock()
		if kept >= 0 {
			l.sent[kept] = append(l.sent[kept], p...)
		}
		if l.alter != nil {
			p = l.alter(slices.Clone(p))
		}
		return p
	})
	back.Wait()
}

// pump carries what comes over one connection to the other.
func (l *line) pump(from, to *net.TCPConn, change func(p []byte) []byte) {
	for buffer := make([]byte, 64<<10); ; {
		n, err := from.Read(buffer)
		if n > 0 && l.waits() {
			if _, failed := to.Write(change(buffer[:n])); failed != nil {
				reset(from)
				return
			}
		}
		switch {
		case err == io.EOF && l.waits():
			_ = to.CloseWrite() // it may be closed already
			return
		case err != nil:
			reset(to)
			return
		}
	}
}
