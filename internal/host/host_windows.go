package host

import (
	"io"
	"net"
	"syscall"
)

// DrainSignal is what 'fsm-proxy drain' would send. Nobody sends signals here.
const DrainSignal = syscall.SIGHUP

// OpenFiles is how many files the process may have open, 0 where that is not bounded.
func OpenFiles() int { return 0 }

// Privately leaves it to the folder who can open the socket: Windows has no
// modes.
func Privately(listen func() (*net.UnixListener, error)) (*net.UnixListener, error) { return listen() }

// Pollable returns standard input and output as they are.
func Pollable(in io.Reader, out, _ io.Writer) (io.Reader, io.Writer, func()) {
	return in, out, func() {}
}
