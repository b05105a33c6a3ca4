//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package host

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// folderPatience is how long another process may hold a folder.
const folderPatience = 2 * time.Second

// LockFolder keeps other proxies that start at the same moment from looking at a
// folder's sockets, until unlock. A folder that cannot be locked is not.
func LockFolder(path string) (unlock func()) {
	folder, err := os.Open(path)
	if err != nil {
		return func() {}
	}
	for until := time.Now().Add(folderPatience); ; time.Sleep(5 * time.Millisecond) {
		err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(until) {
			return func() { folder.Close() } // which unlocks it
		}
	}
}
