package peers

import (
	"errors"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// unanswered bounds how long what was sent may be without an acknowledgement (RFC 5482): keep-alive is for connections
// on which nothing is under way.
func unanswered(network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var set error
	err := c.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
	return errors.Join(err, set)
}
