//go:build unix

package stdio

import (
	"io"
	"syscall"
	"time"
)

// direct writes to a file without ever waiting for the other end.
type direct struct {
	conn  syscall.RawConn
	batch []byte
	n     int
	err   error
	once  func(fd uintptr) bool
}

// newDirect returns nil where a write to w could wait: it is no file, or none
// that the runtime polls.
func newDirect(w io.Writer) *direct {
	f, ok := w.(interface {
		syscall.Conn
		SetWriteDeadline(time.Time) error
	})
	if !ok || f.SetWriteDeadline(time.Time{}) != nil {
		return nil
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	d := &direct{conn: conn}
	d.once = d.write
	return d
}

// try writes what there is room for: n bytes of batch. It is not safe for
// concurrent use.
func (d *direct) try(batch []byte) (n int, err error) {
	d.batch, d.n, d.err = batch, 0, nil
	if err := d.conn.Write(d.once); err != nil {
		return 0, err
	}
	d.batch = nil
	return d.n, d.err
}

// write makes one attempt, and is done whatever came of it.
func (d *direct) write(fd uintptr) bool {
	n, err := syscall.Write(int(fd), d.batch)
	switch err {
	case nil:
		d.n = n
	case syscall.EAGAIN, syscall.EINTR:
	default:
		d.err = err
	}
	return true
}
