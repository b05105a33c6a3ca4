package watch

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadFile(t *testing.T) {
	path := policyIn(t, page(3))
	f := Config{Path: path}.Read()
	if f.Err != nil || f.Path != path || string(f.Content) != page(3) || f.Digest != sha256.Sum256([]byte(page(3))) {
		t.Errorf("got %d bytes of %s, error %v", len(f.Content), f.Path, f.Err)
	}
}

func TestReadFolder(t *testing.T) {
	path := policyIn(t, page(3))
	dir := filepath.Dir(path)
	must(t, os.Mkdir(filepath.Join(dir, "old.yaml"), 0o755))
	must(t, os.Symlink("nobody@host.1:2", filepath.Join(dir, ".#policy.yaml"))) // Emacs' lock
	must(t, os.Symlink("gone", filepath.Join(dir, "gone.yml")))
	write(t, path+"~", "x")
	if f := (Config{Path: dir}).Read(); f.Err != nil || f.Path != path || string(f.Content) != page(3) {
		t.Errorf("got %d bytes of %s, error %v", len(f.Content), f.Path, f.Err)
	}
}

func TestReadErrors(t *testing.T) {
	dir := t.TempDir()
	several := filepath.Join(dir, "several")
	must(t, os.Mkdir(several, 0o755))
	for _, name := range []string{"a.yaml", "b.yml", "c.YAML", "d.yaml", "e.yaml", "f.yaml", "g.yaml"} {
		write(t, filepath.Join(several, name), "x")
	}
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	empty := filepath.Join(dir, "empty")
	must(t, os.Mkdir(empty, 0o755))
	for _, test := range []struct{ path, says string }{
		{filepath.Join(dir, "none.yaml"), "put a file there"},
		{filepath.Join(dir, "loop"), "give the path of a file"},
		{filepath.Join(several, "a.yaml", "x"), "give the path of a file"},
		{several, "several policy files, a.yaml, b.yml, c.YAML, d.yaml, e.yaml and 2 more; leave one"},
		{empty, "no *.yaml or *.yml file; put one there"},
		{os.DevNull, "this is a device; give the path of a file"},
	} {
		f := Config{Path: test.path}.Read()
		if f.Err == nil || !strings.Contains(f.Err.Error(), test.says) || !strings.Contains(f.Err.Error(), test.path) {
			t.Errorf("%s: %v, want %q", test.path, f.Err, test.says)
			continue
		}
		if strings.Contains(f.Err.Error(), "\n") || f.Content != nil || f.Digest == (File{}).Digest {
			t.Errorf("%s: %q with %d bytes, digest %x", test.path, f.Err, len(f.Content), f.Digest)
		}
	}
}

func TestReadLimit(t *testing.T) {
	path := policyIn(t, "12345")
	if f := (Config{Path: path, MaxSize: 5}).Read(); f.Err != nil || string(f.Content) != "12345" {
		t.Errorf("five of five bytes: %q, %v", f.Content, f.Err)
	}
	if f := (Config{Path: path, MaxSize: 4}).Read(); f.Err == nil || !strings.Contains(f.Err.Error(), "larger than 4 bytes") {
		t.Errorf("five of four bytes: %q, %v", f.Content, f.Err)
	}
}

// The folders of all links on the way are watched, and not those between.
func TestSurvey(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for _, dir := range []string{"a/b", "c/d", "e/f"} {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must(t, os.Symlink("../../c/d/p.yaml", filepath.Join(root, "a/b/p.yaml")))
	must(t, os.Symlink(filepath.Join(root, "e"), filepath.Join(root, "c/e")))
	must(t, os.Symlink("../e/f/q.yaml", filepath.Join(root, "c/d/p.yaml")))
	got := survey(filepath.Join(root, "a", "b", "p.yaml"))
	want := map[string]bool{"a/b": true, "c/d": true, "c": true, "e/f": true}
	for dir := range got.dirs {
		rel, err := filepath.Rel(root, dir)
		must(t, err)
		if !want[filepath.ToSlash(rel)] {
			t.Errorf("%s is watched", rel)
		}
		delete(want, filepath.ToSlash(rel))
	}
	if len(want) > 0 {
		t.Errorf("not watched: %v", want)
	}
	for name, matters := range map[string]bool{"q.yaml": true, "P.YAML": true, "e": true, "x.yaml": false} {
		if got.concerns("/any/"+name) != matters {
			t.Errorf("%s matters: %v", name, !matters)
		}
	}
}
