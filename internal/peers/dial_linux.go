package peers

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endSilent bounds how long what was sent on a socket may be without an acknowledgement, or wait for the other side to
// take it (RFC 5482): keep-alive is for connections on which nothing is under way. Those that a listener accepts have
// what it has.
func endSilent(c syscall.RawConn, after time.Duration) error {
	var set error
	err := c.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
	})
	return errors.Join(err, set)
}
