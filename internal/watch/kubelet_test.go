package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A volume is a folder that is written as kubelet's AtomicWriter writes a
// ConfigMap, in the same steps.
type volume struct {
	t    *testing.T
	dir  string
	turn int
}

func newVolume(t *testing.T, files map[string]string) *volume {
	t.Helper()
	v := &volume{t: t, dir: t.TempDir()}
	v.write(files)
	return v
}

func (v *volume) path(name string) string { return filepath.Join(v.dir, name) }

// write replaces all files of the volume.
func (v *volume) write(files map[string]string) {
	v.t.Helper()
	v.turn++
	stamp := fmt.Sprintf("..2026_11_21_03_14_08.%09d", v.turn)
	old, _ := os.Readlink(v.path("..data")) // none at first
	must(v.t, os.Mkdir(v.path(stamp), 0o755))
	for name, content := range files {
		write(v.t, filepath.Join(v.dir, stamp, name), content)
	}
	v.show(files)
	must(v.t, os.Symlink(stamp, v.path("..data_tmp")))
	must(v.t, os.Rename(v.path("..data_tmp"), v.path("..data")))
	if old != "" {
		v.hide(old, files)
		must(v.t, os.RemoveAll(v.path(old)))
	}
}

// show makes the links that a user sees, before their targets are there.
func (v *volume) show(files map[string]string) {
	for name := range files {
		if _, err := os.Readlink(v.path(name)); err != nil {
			must(v.t, os.Symlink(filepath.Join("..data", name), v.path(name)))
		}
	}
}

// hide removes the links to what was in old only.
func (v *volume) hide(old string, files map[string]string) {
	entries, err := os.ReadDir(v.path(old))
	must(v.t, err)
	for _, entry := range entries {
		if _, ok := files[entry.Name()]; !ok {
			must(v.t, os.Remove(v.path(entry.Name())))
		}
	}
}

func TestEachSwapArrives(t *testing.T) {
	v := newVolume(t, map[string]string{"policy.yaml": page(0)})
	r := start(t, quick(v.path("policy.yaml")))
	var took []time.Duration
	for n := range 200 {
		v.write(map[string]string{"policy.yaml": page(n + 1), "other": "x"})
		swapped := time.Now()
		mustBePages(t, r.await(page(n+1)))
		took = append(took, time.Since(swapped))
	}
	slices.Sort(took)
	t.Logf("from swap to delivery with a debounce of 5ms: median %v, 95th of 100 %v, longest %v", took[100], took[190], took[199])
}

func TestSwapsInARow(t *testing.T) {
	v := newVolume(t, map[string]string{"policy.yaml": page(0)})
	r := start(t, quick(v.path("policy.yaml")))
	const swaps = 600
	for n := range swaps {
		v.write(map[string]string{"policy.yaml": page(n + 1)})
	}
	before := r.await(page(swaps))
	mustBePages(t, before)
	t.Logf("%d swaps, %d deliveries", swaps, len(before)+1)
}

// A volume is also found through links and folders of somebody else.
func TestSwapBehindALink(t *testing.T) {
	v := newVolume(t, map[string]string{"policy.yaml": page(0)})
	link := filepath.Join(t.TempDir(), "current.yaml")
	must(t, os.Symlink(v.path("policy.yaml"), link))
	r := start(t, quick(link))
	for n := range 20 {
		v.write(map[string]string{"policy.yaml": page(n + 1)})
		mustBePages(t, r.await(page(n+1)))
	}
	other := policyIn(t, page(100))
	must(t, os.Symlink(other, link+".new"))
	must(t, os.Rename(link+".new", link))
	mustBePages(t, r.await(page(100)))
	replace(t, other, page(101))
	mustBePages(t, r.await(page(101)))
}

func TestSwapInAFolder(t *testing.T) {
	v := newVolume(t, map[string]string{"a.yaml": page(0), "README": "x"})
	r := start(t, quick(v.dir))
	for n := range 20 {
		v.write(map[string]string{"a.yaml": page(n + 1)})
		mustBePages(t, r.await(page(n+1)))
	}
	v.write(map[string]string{"b.yml": page(30)}) // the key is renamed
	r.await(page(30))
	v.write(map[string]string{"b.yml": page(31), "a.yaml": page(32)})
	r.awaitError("several policy files, a.yaml, b.yml")
	v.write(map[string]string{"a.yaml": page(33)})
	r.await(page(33))
}
