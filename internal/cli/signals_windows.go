package cli

import "syscall"

// drainSignal is what 'fsm-proxy drain' would send. Nobody sends signals here.
const drainSignal = syscall.SIGHUP
