//go:build !linux

package postgres

import "time"

var started = time.Now()

// elapsed is a clock that nobody sets. It may stop while the machine sleeps.
func elapsed() time.Duration { return time.Since(started) }
