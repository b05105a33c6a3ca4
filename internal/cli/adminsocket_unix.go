//go:build unix

package cli

import (
	"net"
	"syscall"
)

// privately makes a socket that only this user can open, from its first moment
// on. It is for the start, when nothing else makes files.
func privately(listen func() (*net.UnixListener, error)) (*net.UnixListener, error) {
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return listen()
}
