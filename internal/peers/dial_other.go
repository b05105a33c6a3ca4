//go:build !linux

package peers

import (
	"syscall"
	"time"
)

func endSilent(syscall.RawConn, time.Duration) error { return nil }
