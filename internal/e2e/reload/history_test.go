package reload

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// history is which version was in force when, as far as can be seen from outside: none before it was written, and
// none after the log has said that the next one is. Times are since the beginning.
type history struct {
	start time.Time

	mu       sync.Mutex // guards what follows
	changed  chan struct{}
	written  map[int]time.Duration // the moment before each version was written
	byDigest map[string]int
	reigns   []reign
	refusals []string // the errors of policies that were not taken
	foreign  []string // digests in the log that nobody wrote
}

// reign is the time of one version, in the order of the log.
type reign struct {
	version int
	since   time.Duration // when the log said so
}

func newHistory() *history {
	return &history{start: time.Now(), changed: make(chan struct{}), written: map[int]time.Duration{}, byDigest: map[string]int{}}
}

func (h *history) now() time.Duration { return time.Since(h.start) }

// about notes that a version is about to be written, and what it says.
func (h *history) about(n int, content string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written[n] = h.now()
	h.byDigest[digest(content)] = n
}

// begin notes the version that the proxy has begun with.
func (h *history) begin(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reigns = append(h.reigns, reign{n, h.now()})
}

// line is what a line of the proxy's log may say.
type line struct {
	Message string `json:"@message"`
	Error   string `json:"error"`
	Digest  string `json:"digest"`
}

// follow reads the log as it is written, until the process has ended.
func (h *history) follow(log *mcptest.Log) {
	at := 0
	for {
		text, changed, over := log.From(at)
		end := strings.LastIndexByte(text, '\n') + 1
		for each := range strings.Lines(text[:end]) {
			h.hear(each)
		}
		if at += end; over {
			return
		}
		<-changed
	}
}

func (h *history) hear(text string) {
	if !strings.Contains(text, "reloaded") {
		return
	}
	var l line
	if json.Unmarshal([]byte(text), &l) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n, known := h.byDigest[l.Digest]
	switch {
	case strings.HasPrefix(l.Message, "the policy was not reloaded"):
		h.refusals = append(h.refusals, l.Error)
	case l.Message != "the policy was reloaded":
		return
	case !known:
		h.foreign = append(h.foreign, l.Digest)
	default:
		h.reigns = append(h.reigns, reign{n, h.now()})
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// await waits until a condition, which is looked at under the lock, is true.
func (h *history) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	timeout := time.NewTimer(mcptest.Patience)
	defer timeout.Stop()
	for {
		h.mu.Lock()
		done, changed := condition(), h.changed
		h.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			t.Fatalf("waited %v for %s", mcptest.Patience, what)
		}
	}
}

// awaitVersion waits until a version is in force.
func (h *history) awaitVersion(t *testing.T, n int) {
	t.Helper()
	h.await(t, fmt.Sprint("version ", n), func() bool { return h.latestLocked() == n })
}

// awaitRefusal waits until the log has told of more policies that were not taken than before.
func (h *history) awaitRefusal(t *testing.T, before int, why string) {
	t.Helper()
	h.await(t, "the refusal of a policy that is "+why, func() bool { return len(h.refusals) > before })
}

func (h *history) refused() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.refusals)
}

func (h *history) latest() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.latestLocked()
}

func (h *history) latestLocked() int { return h.reigns[len(h.reigns)-1].version }

// next returns a channel that closes with the next word of the log on a reload.
func (h *history) next() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

// span are the reigns, by their number, that a call from sent to answered may have been decided under.
func (h *history) span(sent, answered time.Duration) (first, last int) {
	first = len(h.reigns) - 1
	for first > 0 && h.reigns[first].since > sent {
		first--
	}
	last = first
	for last+1 < len(h.reigns) && h.written[h.reigns[last+1].version] < answered {
		last++
	}
	return first, last
}

// changes counts how often two versions that followed one another differ, by some measure.
func (h *history) changes(of func(n int) string) (count int) {
	for i, r := range h.reigns[1:] {
		if of(r.version) != of(h.reigns[i].version) {
			count++
		}
	}
	return count
}
