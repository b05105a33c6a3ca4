//go:build !linux

package main

import (
	"runtime"
	"time"
)

// processCPU knows nothing here.
func processCPU(int, bool) (time.Duration, bool) { return 0, false }

// anonymousMemory knows nothing here.
func anonymousMemory(int) (int64, bool) { return 0, false }

// machineFacts are the processor's name and the system.
func machineFacts() (cpu, kernel string) { return runtime.GOARCH, runtime.GOOS }
