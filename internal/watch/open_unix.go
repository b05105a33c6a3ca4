//go:build unix

package watch

import (
	"os"
	"syscall"
)

// open opens a file for reading. It does not wait for somebody to write, where
// the path has become a pipe since it was looked at.
func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}
