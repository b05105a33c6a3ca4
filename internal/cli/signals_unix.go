//go:build unix

package cli

import "syscall"

// drainSignal is what 'fsm-proxy drain' sends.
const drainSignal = syscall.SIGUSR1
