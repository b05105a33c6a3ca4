//go:build unix

package cli

import "syscall"

// openFiles is how many files the process may have open, 0 where that is not bounded.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || uint64(limit.Cur) > 1<<30 {
		return 0
	}
	return int(limit.Cur)
}
