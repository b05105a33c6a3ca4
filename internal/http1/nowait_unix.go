//go:build unix

package http1

import (
	"io"
	"syscall"
)

// canTry says that a connection can be read from and written to without waiting.
const canTry = true

// errNothing is that there is nothing to read now.
const errNothing = syscall.EAGAIN

// readNow reads what is there.
func readNow(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, p)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// writeNow writes what there is room for. That there is no room is no error.
func writeNow(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Write(fd, p)
		switch {
		case err == syscall.EINTR:
		case err == errNothing:
			return 0, nil
		default:
			return max(n, 0), err
		}
	}
}
