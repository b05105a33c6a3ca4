//go:build unix

package main

import "syscall"

// drainSignal is what 'fsm-proxy drain' sends.
const drainSignal = syscall.SIGUSR1
