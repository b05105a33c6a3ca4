package watch

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// saves edits a file many times, and checks that nothing but whole files come
// out of it. A save that the machine itself stopped in the middle may be seen.
func saves(t *testing.T, save func(t *testing.T, path, content string)) {
	t.Helper()
	path := policyIn(t, page(0))
	cfg := quick(path)
	cfg.Debounce, cfg.MaxDebounce = 25*time.Millisecond, time.Second
	r := start(t, cfg)
	for n := range 30 {
		began := time.Now()
		save(t, path, page(n+1))
		stopped := time.Since(began) >= cfg.Debounce
		before := r.await(page(n + 1))
		if stopped {
			t.Logf("save %d took %v", n, time.Since(began))
			continue
		}
		mustBePages(t, before)
	}
}

func TestRenameSave(t *testing.T) { saves(t, replace) }

// vim keeps the old file under another name until the new one is written.
func TestVimSave(t *testing.T) {
	saves(t, func(t *testing.T, path, content string) {
		probe := filepath.Join(filepath.Dir(path), "4913")
		write(t, probe, "")
		must(t, os.Remove(probe))
		must(t, os.Rename(path, path+"~"))
		write(t, path, content)
		must(t, os.Remove(path+"~"))
	})
}

func TestTruncatingSave(t *testing.T) { saves(t, write) }

// A save in pieces is seen when its last piece is there.
func TestSaveInPieces(t *testing.T) {
	saves(t, func(t *testing.T, path, content string) {
		f, err := os.Create(path)
		must(t, err)
		for piece := []byte(content); len(piece) > 0; {
			n, err := f.Write(piece[:min(len(piece), 5000)])
			must(t, err)
			piece = piece[n:]
		}
		must(t, f.Close())
	})
}

func TestRenameSavesInARow(t *testing.T) {
	path := policyIn(t, page(0))
	r := start(t, quick(path))
	const count = 600
	for n := range count {
		replace(t, path, page(n+1))
	}
	mustBePages(t, r.await(page(count)))
}

// Nothing has changed by a file of the same content, or by other files.
func TestOnlyContentCounts(t *testing.T) {
	path := policyIn(t, page(0))
	r := start(t, quick(path))
	replace(t, path, page(0))
	write(t, filepath.Join(filepath.Dir(path), "other.yaml"), page(7))
	must(t, os.Chmod(path, 0o600))
	replace(t, path, page(1))
	if before := r.await(page(1)); len(before) > 0 {
		t.Errorf("delivered %d files of the same content", len(before))
	}
}

func TestRemovedAndCreated(t *testing.T) {
	path := policyIn(t, page(0))
	r := start(t, quick(path))
	for n := range 5 {
		must(t, os.Remove(path))
		r.awaitError(path)
		write(t, path, page(n/2)) // now and then what it was before
		r.await(page(n / 2))
	}
}

func TestFolderRemovedAndCreated(t *testing.T) {
	outer := filepath.Join(t.TempDir(), "outer")
	inner := filepath.Join(outer, "inner")
	path := filepath.Join(inner, "policy.yaml")
	r := start(t, quick(path)) // nothing of it is there yet
	for n := range 5 {
		must(t, os.MkdirAll(inner, 0o755))
		write(t, path, page(n))
		r.await(page(n))
		must(t, os.RemoveAll(outer))
		r.awaitError("put a file there")
	}
}

func TestFolderReplaced(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "dir")
	path := filepath.Join(dir, "policy.yaml")
	must(t, os.Mkdir(dir, 0o755))
	write(t, path, page(0))
	r := start(t, quick(path))
	for n := range 5 {
		fresh := filepath.Join(root, "fresh")
		must(t, os.Mkdir(fresh, 0o755))
		write(t, filepath.Join(fresh, "policy.yaml"), page(10*n+1))
		must(t, os.Rename(dir, filepath.Join(t.TempDir(), "old")))
		must(t, os.Rename(fresh, dir))
		r.await(page(10*n + 1))
		write(t, path, page(10*n+2))
		r.await(page(10*n + 2))
	}
}

// A folder is found again through a link that is made anew.
func TestFolderBehindALink(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	first, second := policyIn(t, page(0)), policyIn(t, page(1))
	must(t, os.Symlink(filepath.Dir(first), link))
	r := start(t, quick(filepath.Join(link, "policy.yaml")))
	for n := range 5 {
		must(t, os.Remove(link))
		must(t, os.Symlink(filepath.Dir(second), link))
		r.await(page(n + 1))
		replace(t, first, page(n+2))
		replace(t, second, page(n+10))
		r.await(page(n + 10))
		first, second = second, first
	}
}

// The parent of a link's target is not the parent of the link.
func TestParentOfALink(t *testing.T) {
	path := policyIn(t, page(0))
	sub := filepath.Join(filepath.Dir(path), "sub")
	must(t, os.Mkdir(sub, 0o755))
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(sub, link))
	r := start(t, quick(link+"/../policy.yaml"))
	replace(t, path, page(1))
	mustBePages(t, r.await(page(1)))
}

// What happens far above the file is no event; the next look sees it, and from
// then on there are events again.
func TestAncestorReplaced(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "a", "b", "policy.yaml")
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	write(t, path, page(0))
	r := start(t, quick(path))
	for n := range 5 {
		must(t, os.Rename(filepath.Join(root, "a"), filepath.Join(t.TempDir(), "old")))
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		write(t, path, page(10*n+1))
		r.kick <- struct{}{}
		r.await(page(10*n + 1))
		replace(t, path, page(10*n+2))
		r.await(page(10*n + 2))
	}
}

func TestTrigger(t *testing.T) {
	path := policyIn(t, page(0))
	r := start(t, quick(path))
	for range 3 {
		r.kick <- struct{}{}
		if f := r.next(); string(f.Content) != page(0) || f.Path != path {
			t.Errorf("asked, got %d bytes of %s, error %v", len(f.Content), f.Path, f.Err)
		}
	}
	replace(t, path, page(1))
	r.kick <- struct{}{}
	r.await(page(1))
	must(t, os.Remove(path))
	r.kick <- struct{}{}
	r.awaitError("no such file")
}

func TestEndOfContext(t *testing.T) {
	path := policyIn(t, page(0))
	r := start(t, quick(path))
	r.kick <- struct{}{}
	r.next()
	r.end()
	replace(t, path, page(1))
	if len(r.got) > 0 {
		t.Error("delivered after the end")
	}
}
