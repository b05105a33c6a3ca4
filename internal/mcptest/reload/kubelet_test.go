package reload

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// volume is a folder that is laid out and changed as the kubelet does it with a ConfigMap: each version in a folder
// of its own, to which the link ..data leads that is replaced at one stroke.
type volume struct {
	t       *testing.T
	dir     string
	swaps   int
	current string
}

func newVolume(t *testing.T, content string) *volume {
	t.Helper()
	v := &volume{t: t, dir: t.TempDir()}
	v.swap(file(content))
	must(t, os.Symlink(filepath.Join("..data", "policy.yaml"), v.path()))
	return v
}

func (v *volume) path() string { return filepath.Join(v.dir, "policy.yaml") }

// file fills a version's folder with one policy.
func file(content string) func(path string) error {
	return func(path string) error { return os.WriteFile(path, []byte(content), 0o644) }
}

// swap puts a new version in place of the last one. fill makes its file.
func (v *volume) swap(fill func(path string) error) {
	v.t.Helper()
	v.swaps++
	name := fmt.Sprintf("..2026_11_21_%09d", v.swaps)
	must(v.t, os.Mkdir(filepath.Join(v.dir, name), 0o755))
	must(v.t, fill(filepath.Join(v.dir, name, "policy.yaml")))
	v.point(name)
	if v.current != "" {
		must(v.t, os.RemoveAll(filepath.Join(v.dir, v.current)))
	}
	v.current = name
}

// point makes ..data lead to a folder.
func (v *volume) point(name string) {
	v.t.Helper()
	tmp := filepath.Join(v.dir, "..data_tmp")
	must(v.t, os.Symlink(name, tmp))
	must(v.t, os.Rename(tmp, filepath.Join(v.dir, "..data")))
}
