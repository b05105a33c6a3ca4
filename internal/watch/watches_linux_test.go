package watch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kernelWatches counts the inotify watches of this process.
func kernelWatches(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	must(t, err)
	count := 0
	for _, file := range files {
		info, _ := os.ReadFile(file) // the one that Glob had open is gone
		count += strings.Count(string(info), "inotify wd:")
	}
	return count
}

// Swapped and replaced folders leave no watches behind.
func TestWatchesDoNotPile(t *testing.T) {
	v := newVolume(t, map[string]string{"policy.yaml": page(0)})
	parent := filepath.Join(t.TempDir(), "parent")
	must(t, os.MkdirAll(parent, 0o755))
	must(t, os.Symlink(v.path("policy.yaml"), filepath.Join(parent, "policy.yaml")))
	r := start(t, quick(filepath.Join(parent, "policy.yaml")))
	for n := range 50 {
		moved := filepath.Join(t.TempDir(), "moved")
		must(t, os.Rename(parent, moved))
		must(t, os.MkdirAll(parent, 0o755))
		must(t, os.Symlink(v.path("policy.yaml"), filepath.Join(parent, "policy.yaml")))
		v.write(map[string]string{"policy.yaml": page(n + 1)})
		r.await(page(n + 1))
	}
	if got := kernelWatches(t); got != 3 { // parent, the volume, its current folder
		t.Errorf("%d watches, want 3", got)
	}
}

// The folder above is replaced without an event; the watch that is found to be on
// the other folder is taken back.
func TestWatchOfAReplacedAncestor(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "a", "b", "policy.yaml")
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	write(t, path, page(0))
	r := start(t, quick(path))
	for n := range 20 {
		must(t, os.Rename(filepath.Join(root, "a"), filepath.Join(t.TempDir(), "old")))
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		write(t, path, page(n+1))
		r.kick <- struct{}{}
		r.await(page(n + 1))
	}
	if got := kernelWatches(t); got != 1 {
		t.Errorf("%d watches, want 1", got)
	}
}
