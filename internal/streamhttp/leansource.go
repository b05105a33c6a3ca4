package streamhttp

import (
	"bufio"
	"sync"
	"syscall"
)

// readers are the buffers of connections on which something has come: an idle
// connection has none.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

func putReader(br *bufio.Reader) {
	br.Reset(nil)
	readers.Put(br)
}

// source is what a connection's buffer is filled from.
type source struct {
	conn *serverConn
	raw  syscall.RawConn              // nil where there is none
	try  func(fd uintptr) (done bool) // made once
	fd   int                          // that Read reads from without waiting; -1: it waits
	err  error                        // of the last try
}

func (s *source) init(c *serverConn) {
	s.conn, s.fd = c, -1
	s.try = s.tryOnce
	if sc, ok := c.Conn.(syscall.Conn); ok && canTry {
		s.raw, _ = sc.SyscallConn()
	}
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if s.fd >= 0 {
		return readNow(s.fd, p)
	}
	return s.conn.Conn.Read(p)
}

// await waits until something has come. While it waits the connection has no
// buffer, where the system allows that.
func (c *serverConn) await() error {
	if c.br != nil && c.br.Buffered() > 0 {
		return nil
	}
	if c.in.raw == nil {
		return c.fill()
	}
	if err := c.in.raw.Read(c.in.try); err != nil {
		return err
	}
	return c.in.err
}

// fill gives the connection a buffer, and reads once into it if it is empty.
func (c *serverConn) fill() error {
	if c.br == nil {
		c.br = readers.Get().(*bufio.Reader)
		c.br.Reset(&c.in)
	}
	_, err := c.br.Peek(1)
	return err
}

// tryOnce fills the buffer without waiting, or takes it away again.
func (s *source) tryOnce(fd uintptr) bool {
	s.fd = int(fd)
	s.err = s.conn.fill()
	s.fd = -1
	if s.err != errNothing {
		return true
	}
	putReader(s.conn.br)
	s.conn.br = nil
	return false
}
