//go:build unix

package httpserver

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// waiting reports whether something waits to be read from a connection, or to be
// accepted from a listener.
func waiting(conn any) (waits bool) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		waits = err == nil && n > 0
	})
	return waits
}
