//go:build long && unix

package report

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Every file of 1 MiB is read with at most a few times the work that an ordinary one of that size takes, and has an
// end of its findings. Work is the processor time of this process, so that what else the machine does has no part in
// it; BenchmarkHostile has the seconds.
func TestHostileFilesAreReadInTime(t *testing.T) {
	const most = 8
	plain := padded("version: 1\ninitial: s\nstates:\n  s:\n    tools:\n", numbered("      tool_#: {on_success: s, on_unknown: stay}\n"), "")
	ordinary, found := work(t, plain, time.Hour)
	if len(found.Errors()) > 0 {
		t.Fatal(found.Errors()[0])
	}
	t.Logf("an ordinary file: %v", ordinary)
	for name, source := range hostile {
		t.Run(name, func(t *testing.T) { // one after the other: the time is the whole process's
			src := source()
			took, found := work(t, src, 10*most*ordinary)
			if len(src) > maxSource || len(found) > 3100 {
				t.Errorf("%d bytes, %d findings", len(src), len(found))
			}
			t.Logf("%.1f times an ordinary file", took.Seconds()/ordinary.Seconds())
			if took > most*ordinary {
				t.Errorf("it took %v of processor time, and an ordinary file %v", took, ordinary)
			}
		})
	}
}

// work reads a file and returns the processor time that it took; it fails the test when that is more than at most.
func work(t *testing.T, src []byte, atMost time.Duration) (time.Duration, policy.Findings) {
	t.Helper()
	runtime.GC() // what others have left is theirs
	begun, found := processorTime(t), make(chan policy.Findings, 1)
	go func() { _, f := Parse("p.yaml", src); found <- f }()
	for again := time.Tick(100 * time.Millisecond); ; {
		select {
		case f := <-found:
			return processorTime(t) - begun, f
		case <-again:
			if took := processorTime(t) - begun; took > atMost {
				t.Fatalf("no end in sight after %v of processor time", took)
			}
		}
	}
}

// processorTime is what this process has used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
