//go:build unix

package main

import (
	"io"
	"io/fs"
	"os"
	"syscall"
)

// pollable returns standard input as a file that the runtime polls, where it is
// a pipe or a socket: a read then holds no thread, which halves the time a
// message takes, and it can be interrupted. restore gives back the mode that
// other processes may share. Anything else, a terminal above all, is returned
// as it is.
func pollable(in io.Reader) (file io.Reader, restore func()) {
	f, ok := in.(*os.File)
	if !ok {
		return in, func() {}
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) == 0 {
		return in, func() {}
	}
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return in, func() {}
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return in, func() {}
	}
	polled := os.NewFile(uintptr(fd), f.Name())
	return polled, func() {
		_ = syscall.SetNonblock(int(f.Fd()), false)
		_ = polled.Close()
	}
}
