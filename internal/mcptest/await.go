package mcptest

import (
	"testing"
	"time"
)

// Patience is how long a wait for a condition lasts before the test fails. It is never slept through.
const Patience = 30 * time.Second

// Await waits for a condition that no channel tells of; what says which.
func Await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	timeout := time.After(Patience)
	for !condition() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-timeout:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
