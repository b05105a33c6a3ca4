package postgres

import (
	"time"

	"golang.org/x/sys/unix"
)

// elapsed is a clock that nobody sets, and that goes on while the machine sleeps: a lease of the database ends meanwhile.
func elapsed() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // Linux has it since 2.6.39
	}
	return time.Duration(t.Nano())
}
