package watch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a delivery may take on a busy machine.
const patience = 30 * time.Second

// A rig is a Watch under test.
type rig struct {
	t     *testing.T
	got   chan File
	kick  chan struct{}
	stop  context.CancelFunc
	ended chan error
}

// start watches cfg.Path as it is now, until the test ends.
func start(t *testing.T, cfg Config) *rig {
	t.Helper()
	r := &rig{t: t, got: make(chan File, 4096), kick: make(chan struct{}), ended: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	cfg.Trigger = r.kick
	last := cfg.Read().Digest
	go func() { r.ended <- Watch(ctx, cfg, last, func(f File) { r.got <- f }) }()
	t.Cleanup(r.end)
	return r
}

// end ends the Watch and waits for it.
func (r *rig) end() {
	r.stop()
	if err, ok := <-r.ended; ok && err != nil {
		r.t.Errorf("Watch returned %v", err)
	}
	select {
	case <-r.ended:
	default:
		close(r.ended)
	}
}

// next is the next delivery.
func (r *rig) next() File {
	r.t.Helper()
	select {
	case f := <-r.got:
		return f
	case <-time.After(patience):
		r.t.Fatal("nothing is delivered")
		return File{}
	}
}

// await takes deliveries until one has this content, and returns those before it.
func (r *rig) await(content string) (before []File) {
	r.t.Helper()
	for {
		f := r.next()
		if f.Err == nil && string(f.Content) == content {
			return before
		}
		before = append(before, f)
	}
}

// awaitError takes deliveries until one is an error that says text.
func (r *rig) awaitError(text string) {
	r.t.Helper()
	for {
		f := r.next()
		if f.Err != nil && strings.Contains(f.Err.Error(), text) {
			return
		}
		r.t.Logf("passed over %.40q, %v", f.Content, f.Err)
	}
}

// page is a content that shows whether it is whole.
func page(n int) string {
	line := fmt.Sprintf("number %d\n", n)
	return strings.Repeat(line, 2000) + "end of " + line
}

func isPage(content []byte) bool {
	first, _, _ := bytes.Cut(content, []byte("\n"))
	var n int
	if _, err := fmt.Sscanf(string(first), "number %d", &n); err != nil {
		return false
	}
	return string(content) == page(n)
}

// mustBePages checks that each file was written just so.
func mustBePages(t *testing.T, files []File) {
	t.Helper()
	for _, f := range files {
		if f.Err != nil || !isPage(f.Content) {
			t.Errorf("delivered %d bytes (%.30q…), error %v", len(f.Content), f.Content, f.Err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

// replace saves as most editors do: a new file, renamed over the old.
func replace(t *testing.T, path, content string) {
	t.Helper()
	write(t, path+".tmp", content)
	must(t, os.Rename(path+".tmp", path))
}

// policyIn writes a policy into a new folder and returns its path.
func policyIn(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, content)
	return path
}

// quick is a Config that a test need not wait for.
func quick(path string) Config {
	return Config{Path: path, Debounce: 5 * time.Millisecond, MaxDebounce: 50 * time.Millisecond, Poll: time.Hour}
}
