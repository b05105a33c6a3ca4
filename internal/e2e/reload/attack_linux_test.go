package reload

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// The policy's place is taken by what is no file, by one without end, and by one of 10 GiB.
func TestSpecialFilesInThePoliciesPlace(t *testing.T) {
	t.Parallel()
	specials := map[string]func(path string) error{
		"a pipe":           func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a folder":         func(path string) error { return os.Mkdir(path, 0o755) },
		"a device":         func(path string) error { return os.Symlink("/dev/zero", path) },
		"a loop":           func(path string) error { return os.Symlink("policy.yaml", path) },
		"endless":          func(path string) error { return os.Symlink("/proc/self/mem", path) },
		"a file of 10 GiB": sparse,
	}
	for _, inFolder := range []bool{false, true} {
		e := &editor{t: t, path: mcptest.WritePolicy(t, version(0))}
		path := e.path
		if inFolder {
			path = filepath.Dir(path)
		}
		l := begin(t, 0, path)
		c := l.one()
		for why, make := range specials {
			l.bad(why, func() {
				must(t, make(e.path+".tmp"))
				must(t, os.RemoveAll(e.path))
				e.rename(e.path+".tmp", e.path)
			})
			l.still(c)
			must(t, os.RemoveAll(e.path))
			l.good(e.inPlace)
			l.arrived()
			l.still(c)
		}
	}
}

func sparse(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(10 << 30)
}

// Thousands of events a second, about the policy and about what lies beside it: calls go on, the last policy comes in
// force, and nothing is left open.
func TestEventStorm(t *testing.T) {
	t.Parallel()
	v := newVolume(t, version(0))
	l := begin(t, 0, v.path())
	c := l.one()
	before := descriptors(t, l.process.Process.Pid)
	stop := make(chan struct{})
	var noise sync.WaitGroup
	for n := range 3 {
		noise.Go(func() { clatter(t, v.Path(""), n, stop) })
	}
	for i := range 300 {
		l.good(func(content string) { v.swap(file(content)) })
		if i%10 == 0 {
			c.verdict("always", "")
		}
	}
	l.arrived()
	close(stop)
	noise.Wait()
	l.still(c)
	l.good(func(content string) { v.swap(file(content)) })
	l.arrived()
	c.close() // nothing is under way at the end
	l.noMore(before)
}

// clatter makes, renames and removes files until stop is closed.
func clatter(t *testing.T, dir string, n int, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		path := filepath.Join(dir, fmt.Sprintf("noise-%d-%d.yaml", n, i%50))
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Error(err)
			return
		}
		_ = os.Rename(path, path+"~")
		_ = os.Remove(path + "~")
	}
}

// descriptors counts a process's open files.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must(t, err)
	return len(open)
}

// noMore fails the test unless the proxy comes to have no more open files than before, and few goroutines, which it
// is made to list at its end.
func (l *load) noMore(before int) {
	l.t.Helper()
	deadline := time.Now().Add(mcptest.Patience)
	for descriptors(l.t, l.process.Process.Pid) > before+4 { // connections of this client's
		if time.Now().After(deadline) {
			l.t.Fatalf("%d files are open, %d were", descriptors(l.t, l.process.Process.Pid), before)
		}
	}
	must(l.t, l.process.Process.Signal(syscall.SIGQUIT))
	l.process.ExitCode()
	if n := strings.Count(l.process.Log().String(), "\ngoroutine "); n == 0 || n > 60 {
		l.t.Errorf("%d goroutines at the end", n)
	}
}
