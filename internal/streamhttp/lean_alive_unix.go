//go:build unix

package streamhttp

import (
	"net"
	"syscall"
)

// aliveFunc returns a check of an idle connection that does not wait: nothing
// to read means that it is alive; its end, an error, or bytes that nobody has
// asked for mean that it is of no use.
func aliveFunc(conn net.Conn) func() bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return func() bool { return true }
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return func() bool { return false }
	}
	var alive bool
	var one [1]byte
	peek := func(fd uintptr) bool {
		_, err := syscall.Read(int(fd), one[:])
		alive = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
		return true
	}
	return func() bool {
		alive = false
		return raw.Read(peek) == nil && alive
	}
}
