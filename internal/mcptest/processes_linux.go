package mcptest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Stat is what /proc says of a process.
type Stat struct {
	PID, Parent, Group int
	State              string // one letter; Z: a zombie
}

// readStat reads /proc/PID/stat; ok is false where there is no such process.
func readStat(path string) (s Stat, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return s, false
	}
	before, after, _ := strings.Cut(string(text), " (")
	after = after[strings.LastIndexByte(after, ')')+1:]
	if _, err := fmt.Sscan(after, &s.State, &s.Parent, &s.Group); err != nil {
		return s, false
	}
	s.PID, err = strconv.Atoi(before)
	return s, err == nil
}

// Processes are those of this machine for which the condition holds, zombies too.
func Processes(t testing.TB, condition func(Stat) bool) (found []Stat) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if s, ok := readStat(path); ok && condition(s) {
			found = append(found, s)
		}
	}
	return found
}

// PeakMemory is how many bytes of memory a process has had at the most, those of its files included.
func PeakMemory(t testing.TB, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kib int
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatalf("the peak of process %d: %v", pid, err)
	}
	return kib << 10
}
