package mcptest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Volume is a folder that is laid out and changed as the kubelet does it with a ConfigMap: each version in a folder of
// its own, to which the link ..data leads that is replaced at one stroke.
type Volume struct {
	t       testing.TB
	dir     string
	swaps   int
	current string
}

// NewVolume returns a volume with files, by their names.
func NewVolume(t testing.TB, files map[string]string) *Volume {
	t.Helper()
	v := &Volume{t: t, dir: t.TempDir()}
	v.must(os.Chmod(v.dir, 0o755))
	v.Swap(files)
	for name := range files {
		v.must(os.Symlink(filepath.Join("..data", name), v.Path(name)))
	}
	return v
}

// Path is where a file of the volume stands; the volume's own folder for the empty name.
func (v *Volume) Path(name string) string { return filepath.Join(v.dir, name) }

// Swap puts a new version in place of the last one. Its files have the names of the first one's.
func (v *Volume) Swap(files map[string]string) {
	v.t.Helper()
	v.SwapBy(func(dir string) error {
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}

// SwapBy is Swap with a folder that fill fills.
func (v *Volume) SwapBy(fill func(dir string) error) {
	v.t.Helper()
	v.swaps++
	name := fmt.Sprintf("..2026_11_21_%09d", v.swaps)
	v.must(os.Mkdir(filepath.Join(v.dir, name), 0o755))
	v.must(fill(filepath.Join(v.dir, name)))
	v.Point(name)
	if v.current != "" {
		v.must(os.RemoveAll(filepath.Join(v.dir, v.current)))
	}
	v.current = name
}

// Point makes ..data lead to a folder, whether it is there or not.
func (v *Volume) Point(name string) {
	v.t.Helper()
	tmp := filepath.Join(v.dir, "..data_tmp")
	v.must(os.Symlink(name, tmp))
	v.must(os.Rename(tmp, filepath.Join(v.dir, "..data")))
}

func (v *Volume) must(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatalf("changing the volume: %v", err)
	}
}
