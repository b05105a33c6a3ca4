//go:build !windows

package sqlite

// holderPath is where it says who has a lock.
func holderPath(lock string) string { return lock }
