//go:build long

package pod

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// journal is what happened to a pod, in order. It is safe for concurrent use.
type journal struct {
	begun time.Time

	mu      sync.Mutex // guards what follows
	entries []string
	at      []time.Duration
	changed chan struct{}
}

func newJournal() *journal { return &journal{begun: time.Now(), changed: make(chan struct{})} }

func (j *journal) note(format string, values ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, fmt.Sprintf(format, values...))
	j.at = append(j.at, time.Since(j.begun))
	close(j.changed)
	j.changed = make(chan struct{})
}

// all is the entries so far.
func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out strings.Builder
	for i, entry := range j.entries {
		fmt.Fprintf(&out, "%8.3f %s\n", j.at[i].Seconds(), entry)
	}
	return out.String()
}

// from returns the index of the first entry at or behind a place that begins with the text; -1 if there is none yet.
func (j *journal) from(place int, text string) int {
	all := j.all()
	for i := place; i < len(all); i++ {
		if strings.HasPrefix(all[i], text) {
			return i
		}
	}
	return -1
}

// await waits for an entry at or behind a place that begins with the text, and returns the place behind it.
func (j *journal) await(t *testing.T, place int, text string) int {
	t.Helper()
	timeout := time.NewTimer(2 * mcptest.Patience)
	defer timeout.Stop()
	for {
		j.mu.Lock()
		changed := j.changed
		j.mu.Unlock()
		if i := j.from(place, text); i >= 0 {
			return i + 1
		}
		select {
		case <-changed:
		case <-timeout.C:
			t.Fatalf("waited in vain for %q in the pod's journal:\n%s", text, j)
		}
	}
}

// inOrder fails the test unless such entries are there, in this order, with whatever between them.
func (j *journal) inOrder(t *testing.T, texts ...string) {
	t.Helper()
	place := 0
	for _, text := range texts {
		i := j.from(place, text)
		if i < 0 {
			t.Errorf("%q is not in the pod's journal, or not behind what it should be:\n%s", text, j)
			return
		}
		place = i + 1
	}
}

// never fails the test if there is an entry that begins with the text.
func (j *journal) never(t *testing.T, text string) {
	t.Helper()
	if j.from(0, text) >= 0 {
		t.Errorf("%q is in the pod's journal:\n%s", text, j)
	}
}
