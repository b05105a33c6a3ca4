//go:build unix

package host

import (
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Pollable returns standard input and output as files that the runtime polls,
// where they are pipes or sockets: a read then holds no thread, which halves the
// time a message takes, and can be interrupted; a write needs no goroutine of
// its own. restore gives back the mode that other processes may share. Anything
// else, a terminal above all, is returned as it is; so is an output that is
// standard error too, where a log line that finds no room would be lost.
func Pollable(in io.Reader, out, stderr io.Writer) (polledIn io.Reader, polledOut io.Writer, restore func()) {
	restoreIn, restoreOut := func() {}, func() {}
	if f := pipe(in); f != nil {
		in, restoreIn = polled(f)
	}
	if f := pipe(out); f != nil && !sameFile(f, stderr) {
		out, restoreOut = polled(f)
	}
	return in, out, func() { restoreOut(); restoreIn() }
}

// pipe returns stream as a file if it is a pipe or a socket.
func pipe(stream any) *os.File {
	f, ok := stream.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) == 0 {
		return nil
	}
	return f
}

func sameFile(f *os.File, other any) bool {
	o, ok := other.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	others, otherErr := o.Stat()
	return err == nil && otherErr == nil && os.SameFile(info, others)
}

// polled is f in the mode in which the runtime polls it, or f itself.
func polled(f *os.File) (file *os.File, restore func()) {
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return f, func() {}
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return f, func() {}
	}
	twin := os.NewFile(uintptr(fd), f.Name())
	return twin, func() {
		_ = syscall.SetNonblock(int(f.Fd()), false)
		_ = twin.Close()
	}
}
