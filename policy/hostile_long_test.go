//go:build long

package policy

import (
	"testing"
	"time"
)

// Every file of 1 MiB is read in about a second, and has an end of its findings.
// Here it is only seen that none takes for ever; BenchmarkHostile measures.
func TestHostileFilesAreReadInTime(t *testing.T) {
	for name, source := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, found := source(), make(chan Findings, 1)
			go func() { _, f := Parse("p.yaml", src); found <- f }()
			select {
			case f := <-found:
				if len(src) > maxSource || len(f) > 3100 {
					t.Errorf("%d bytes, %d findings", len(src), len(f))
				}
			case <-time.After(time.Minute):
				t.Error("no end in sight")
			}
		})
	}
}
