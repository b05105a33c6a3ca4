//go:build linux

package service

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// abandoned is a socket as a killed proxy leaves it.
func abandoned(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "a.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	return path
}

// A socket that a killed proxy has left behind is in nobody's way.
func TestStaleAdminSocket(t *testing.T) {
	path := abandoned(t)
	l, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	l.Close()
	if _, err := os.Lstat(path); err == nil {
		t.Error("it was left behind")
	}
}

// Of proxies that start at the same moment over a stale socket, one has it, and
// the others know.
func TestRaceForAStaleAdminSocket(t *testing.T) {
	for range 50 {
		path := abandoned(t)
		var won []net.Listener
		var mu sync.Mutex // guards won
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if l, err := listenUnix(path); err == nil {
					mu.Lock()
					defer mu.Unlock()
					won = append(won, l)
				}
			})
		}
		all.Wait()
		if len(won) != 1 {
			t.Fatalf("%d have it", len(won))
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		won[0].Close()
	}
}

// A socket whose owner is too busy to take connections is not stale.
func TestBusyAdminSocketIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "busy.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 3 { // until its queue is full
		if conn, err := net.Dial("unix", path); err == nil {
			defer conn.Close()
		}
	}
	if _, err := listenUnix(path); err == nil || !strings.Contains(err.Error(), "may listen there") {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

// At its end a proxy does not take another one's socket away.
func TestAdminSocketOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	old, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil { // by somebody who thought that it was dead
		t.Fatal(err)
	}
	now, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	old.Close()
	if conn, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
}

// A link is no socket: it is not followed, nor removed.
func TestAdminSocketIsNoLink(t *testing.T) {
	path := abandoned(t)
	link := filepath.Join(filepath.Dir(path), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(link); err == nil || !strings.Contains(err.Error(), "a file of another kind") {
		t.Error(err)
	}
}
