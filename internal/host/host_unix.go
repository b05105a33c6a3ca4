//go:build unix

package host

import (
	"net"
	"syscall"
)

// DrainSignal is what 'fsm-proxy drain' sends.
const DrainSignal = syscall.SIGUSR1

// OpenFiles is how many files the process may have open, 0 where that is not bounded.
func OpenFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || uint64(limit.Cur) > 1<<30 {
		return 0
	}
	return int(limit.Cur)
}

// Privately makes a socket that only this user can open, from its first moment
// on. It is for the start, when nothing else makes files.
func Privately(listen func() (*net.UnixListener, error)) (*net.UnixListener, error) {
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return listen()
}
