package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processCPU is the CPU time that process pid has used, threads that have
// ended included, and with tree that of its living children as well.
func processCPU(pid int, tree bool) (time.Duration, bool) {
	used, ok := cpuClock(pid)
	if !ok || !tree {
		return used, ok
	}
	for _, child := range childrenOf(pid) {
		more, ok := cpuClock(child)
		if !ok {
			return 0, false
		}
		used += more
	}
	return used, true
}

// cpuClock reads the process' CPU clock, whose number is made of the pid as
// clock_getcpuclockid(3) does: the scheduler's figure in nanoseconds, where
// /proc/PID/stat has ticks of 10 ms.
func cpuClock(pid int) (time.Duration, bool) {
	const schedClock = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return 0, false
	}
	return time.Duration(t.Nano()), true
}

// childrenOf lists the children that pid's main thread has started.
func childrenOf(pid int) []int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var pids []int
	for _, field := range bytes.Fields(data) {
		if child, err := strconv.Atoi(string(field)); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// anonymousMemory is how many bytes of memory of its own (not of files) the
// process has resident.
func anonymousMemory(pid int) (int64, bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	return parseRSSAnon(data)
}

func parseRSSAnon(status []byte) (int64, bool) {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}

// machineFacts are the processor's name and the kernel.
func machineFacts() (cpu, kernel string) {
	cpu = "unknown processor"
	data, _ := os.ReadFile("/proc/cpuinfo") // absent: stays unknown
	for line := range bytes.Lines(data) {
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && string(bytes.TrimSpace(name)) == "model name" {
			cpu = string(bytes.TrimSpace(value))
			break
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return cpu, "linux"
	}
	return cpu, "Linux " + unix.ByteSliceToString(u.Release[:])
}
