package reload

import (
	"os"
	"path/filepath"
	"testing"
)

// editor saves a file as editors do.
type editor struct {
	t    *testing.T
	path string
}

// saves are the ways of saving.
func (e *editor) saves() []func(content string) {
	return []func(string){e.inPlace, e.slowly, e.byRename, e.likeVim, e.likeEmacs}
}

func (e *editor) write(path, content string) { must(e.t, os.WriteFile(path, []byte(content), 0o644)) }

func (e *editor) rename(from, to string) { must(e.t, os.Rename(from, to)) }

// inPlace truncates the file and writes it.
func (e *editor) inPlace(content string) { e.write(e.path, content) }

// slowly writes a half, and then the other.
func (e *editor) slowly(content string) {
	f, err := os.Create(e.path)
	must(e.t, err)
	for _, half := range []string{content[:len(content)/2], content[len(content)/2:]} {
		_, err := f.WriteString(half)
		must(e.t, err)
		must(e.t, f.Sync())
	}
	must(e.t, f.Close())
}

// byRename writes another file and puts it in place at one stroke.
func (e *editor) byRename(content string) {
	e.write(e.path+".tmp", content)
	e.rename(e.path+".tmp", e.path)
}

// likeVim tries whether it can write in the folder, moves the old file away and writes a new one.
func (e *editor) likeVim(content string) {
	probe := filepath.Join(filepath.Dir(e.path), "4913")
	e.write(probe, "")
	must(e.t, os.Remove(probe))
	e.rename(e.path, e.path+"~")
	e.write(e.path, content)
	must(e.t, os.Remove(e.path+"~"))
}

// likeEmacs locks the file by a link to nowhere, keeps a copy of what is not saved yet, and leaves the old file as a
// backup.
func (e *editor) likeEmacs(content string) {
	dir, name := filepath.Split(e.path)
	lock, auto := filepath.Join(dir, ".#"+name), filepath.Join(dir, "#"+name+"#")
	must(e.t, os.Symlink("somebody@somewhere.1", lock))
	e.write(auto, content)
	e.rename(e.path, e.path+"~")
	e.write(e.path, content)
	must(e.t, os.Remove(auto))
	must(e.t, os.Remove(lock))
}
