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

// Container returns a command that becomes the one behind it, in a cgroup with so much memory: beyond it the kernel kills.
// Where no cgroup can be made the command is only told its limit, as the proxy would take it from a container.
func Container(t testing.TB, bytes int) (front []string) {
	t.Helper()
	for _, hierarchy := range []struct{ folder, limit string }{
		{"/sys/fs/cgroup", "memory.max"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, // the first version
	} {
		folder := filepath.Join(hierarchy.folder, fmt.Sprintf("fsm-proxy-test-%d-%d", os.Getpid(), containers))
		if os.Mkdir(folder, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { // behind the end of the processes in it
			Await(t, "the cgroup is empty", func() bool { return os.Remove(folder) == nil })
		})
		if writeExisting(filepath.Join(folder, hierarchy.limit), strconv.Itoa(bytes)) != nil {
			continue
		}
		containers++
		t.Logf("in a cgroup of %d MiB", bytes>>20)
		return []string{"sh", "-c", "echo $$ > " + filepath.Join(folder, "cgroup.procs") + ` && exec "$@"`, "sh"}
	}
	return []string{"env", fmt.Sprintf("GOMEMLIMIT=%d", bytes/10*9)}
}

// containers counts the cgroups that were made; tests that make some do not run in parallel.
var containers int

// writeExisting writes to a file that is there: a hierarchy without the memory controller has none.
func writeExisting(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
