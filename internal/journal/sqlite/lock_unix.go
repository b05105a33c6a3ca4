//go:build !windows

package sqlite

import (
	"io/fs"
	"syscall"
)

// holderPath is where it says who has a lock.
func holderPath(lock string) string { return lock }

// hasLinks tells whether a file has more than one name.
func hasLinks(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Nlink > 1
}
