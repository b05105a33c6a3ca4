package service

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fsm-proxy/fsm-proxy/internal/host"
)

// adminSocket is a unix socket that only this user can open. Its file is removed
// at the end, unless another process has put its own there meanwhile.
type adminSocket struct {
	*net.UnixListener
	path string
	file fs.FileInfo
}

// listenUnix listens at a socket. One that a dead process has left behind is
// removed; whatever else is there is left alone.
func listenUnix(path string) (net.Listener, error) {
	defer host.LockFolder(filepath.Dir(path))()
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("--admin unix:%s: %w", path, err)
	}
	l, err := host.Privately(func() (*net.UnixListener, error) {
		return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	})
	if err != nil {
		return nil, fmt.Errorf("--admin unix:%s: %w; give a path in a folder that exists and can be written, of at most 100 characters", path, host.Cause(err))
	}
	l.SetUnlinkOnClose(false)
	file, err := os.Lstat(path)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("--admin unix:%s: %w; the socket was removed as it was made, find out by what", path, host.Cause(err))
	}
	return &adminSocket{l, path, file}, nil
}

// Close removes the file first: while the socket is open, no other file can be
// taken for it.
func (s *adminSocket) Close() error {
	if there, err := os.Lstat(s.path); err == nil && os.SameFile(there, s.file) {
		_ = os.Remove(s.path)
	}
	return s.UnixListener.Close()
}

// removeStale makes room at a path, if what is there is a socket that certainly
// nobody listens at. One that is only busy, or belongs to another user, may be in
// use.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return nil // nothing is there, or listening will say why not
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("there is a file of another kind; choose another path, or remove it")
	}
	conn, err := net.Dial("unix", path)
	switch {
	case err == nil:
		conn.Close()
		return errors.New("another process listens there; choose another path, or end it")
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("another process may listen there (%w); choose another path, or end it and remove the socket", host.Cause(err))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the socket that a dead process has left: %w", host.Cause(err))
	}
	return nil
}
