package streamhttp

import (
	"errors"
	"syscall"
)

// errGone is an idle connection on which something has come: its end, an error,
// or bytes that nobody has asked for. It is of no use.
var errGone = errors.New("the idle connection has ended")

// turn is how a request goes out and its answer begins to come in, where the
// system lets a socket be worked without waiting: the look at whether the
// connection still lives, the writing and the first reading are one trip through
// the poller. What comes after the look wakes the trip, so that no read is spent
// on finding out that the answer is not here yet.
type turn struct {
	conn    *leanConn
	raw     syscall.RawConn              // nil: there is none
	look    func(fd uintptr) (done bool) // made once
	step    func(fd uintptr) (done bool) // made once
	request []byte
	written int
	err     error
}

func (t *turn) init(c *leanConn) {
	t.conn = c
	t.look, t.step = t.looked, t.stepped
	if sc, ok := c.Conn.(syscall.Conn); ok && canTry {
		t.raw, _ = sc.SyscallConn()
	}
}

// alive reports whether an idle connection can carry a request: nothing has come
// on it. Where that can't be seen, that connections are idle for 2 s at most has
// to do.
func (t *turn) alive() bool {
	if t.raw == nil {
		return true
	}
	err := t.raw.Read(t.look)
	return err == nil && t.err == nil
}

func (t *turn) looked(fd uintptr) bool {
	var one [1]byte
	_, err := readNow(int(fd), one[:])
	t.err = nil
	if err != errNothing {
		t.err = errGone
	}
	return true
}

// ask writes a request, and waits for the first bytes of what comes back. An
// error of that waiting is left to who reads the answer: it comes again.
func (t *turn) ask(request []byte) (written int, err error) {
	if t.raw == nil {
		return t.conn.Conn.Write(request)
	}
	t.request, t.written, t.err = request, 0, nil
	waited := t.raw.Read(t.step)
	t.request = nil
	switch {
	case t.err != nil:
		return t.written, t.err
	case t.written == len(request):
		return t.written, nil
	case waited != nil:
		return t.written, waited
	}
	rest, err := t.conn.Conn.Write(request[t.written:])
	return t.written + rest, err
}

// stepped writes when it is called first, and reads from then on. What came on a
// new connection before that wakes nobody any more: nothing has looked for it.
func (t *turn) stepped(fd uintptr) bool {
	if t.written == 0 {
		if !t.wrote(fd) {
			return true
		}
		if t.conn.reused {
			return false
		}
	}
	t.conn.fd = int(fd)
	_, err := t.conn.br.Peek(1)
	t.conn.fd = -1
	return err != errNothing
}

// wrote reports whether the whole request could be written at once.
func (t *turn) wrote(fd uintptr) bool {
	if t.conn.reused && t.looked(fd) && t.err != nil {
		return false
	}
	t.written, t.err = writeNow(int(fd), t.request)
	return t.written == len(t.request)
}
