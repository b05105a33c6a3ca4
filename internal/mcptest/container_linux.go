package mcptest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

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
