package watch

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// A source gives the events of folders; the zero source gives none.
type source struct {
	events <-chan fsnotify.Event
	errors <-chan error
	add    func(dir string) error
	remove func(dir string) error
	close  func()
}

// openSource opens this system's source.
func openSource() (*source, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &source{events: w.Events, errors: w.Errors, add: w.Add, remove: w.Remove, close: func() {
		_ = w.Close() // nothing was written through it
		for range w.Events {
		} // until its goroutine has ended
	}}, nil
}

// open opens the source, unless it is open.
func (w *watcher) open() {
	if w.source.add != nil {
		return
	}
	source, err := w.newSource()
	if err == nil {
		w.source = source
	}
	w.watched(err)
}

// close closes the source; the next poll opens another.
func (w *watcher) close() {
	if w.source.add != nil {
		w.source.close()
	}
	w.source, w.trail, w.polling = &source{}, trail{}, true
}

// follow watches the folders that decide where the path leads, until it leads there after as before. It sets all
// watches anew: one dies unseen with its folder, and one on a folder that was moved away stays there.
func (w *watcher) follow() {
	path := absolute(w.cfg.Path)
	for range 8 {
		for dir := range w.trail.dirs {
			_ = w.source.remove(dir) // it is gone if the folder is
		}
		w.trail = survey(path, w.parts...)
		var failed error
		for dir := range w.trail.dirs {
			if err := w.source.add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = err
			}
		}
		w.watched(failed)
		if w.trail.equal(survey(path, w.parts...)) {
			return
		}
	}
}

// watched takes why not every folder is watched, or nil, and logs the first such error.
func (w *watcher) watched(err error) {
	w.polling = err != nil
	if err == nil || w.warned {
		return
	}
	w.warned = true
	w.cfg.Log.Warn("changes of the "+w.cfg.What+" are seen by polling only; raise the system's limits of watches and open files",
		"error", err, "every", w.cfg.Poll.String())
}

// maxLinks is how many symbolic links are followed on one path, as in Linux.
const maxLinks = 40

// A trail is what decides where a path leads.
type trail struct {
	// dirs are the folders, without links in their paths, that hold the file, or a link on the way to it, or would
	// hold what is missing.
	dirs map[string]bool
	// names are those that matter in any of dirs, and the names of dirs themselves, in lower case.
	names map[string]bool
	// folder is set where the path names a folder: every policy file in it matters.
	folder bool
}

// survey follows an absolute path, and those of parts.
func survey(path string, parts ...string) trail {
	t := trail{dirs: map[string]bool{}, names: map[string]bool{}}
	dir := t.walk(path)
	for _, part := range parts {
		t.walk(part)
	}
	if dir == "" {
		return t
	}
	t.folder = true
	names, _ := policyNames(dir) // what cannot be listed has nothing to follow
	for _, name := range names {
		t.walk(filepath.Join(dir, name))
	}
	return t
}

func (t trail) equal(other trail) bool {
	return t.folder == other.folder && maps.Equal(t.dirs, other.dirs) && maps.Equal(t.names, other.names)
}

// concerns reports whether an event about name may have changed anything.
func (t trail) concerns(name string) bool {
	base := filepath.Base(name)
	return t.names[strings.ToLower(base)] || t.folder && isPolicyName(base)
}

// walk notes what decides where an absolute path leads, and returns the folder that it leads to, or "" if that is none.
// It takes one element after the other, as the system does: ".." is the parent of a link's target, not of the link.
func (t trail) walk(path string) (folder string) {
	at, rest := splitRoot(path)
	isDir := true
	for links := 0; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, separator)
		next := filepath.Join(at, name) // name may be "", "." or ".."
		info, err := os.Lstat(next)
		if err == nil && info.Mode()&fs.ModeSymlink == 0 {
			at, isDir = next, info.IsDir()
			continue
		}
		t.note(at, name)
		target, _ := os.Readlink(next) // "" if nothing is there
		if links++; target == "" || links > maxLinks {
			return ""
		}
		if os.IsPathSeparator(target[0]) && !filepath.IsAbs(target) { // on the same volume, in Windows
			target = filepath.VolumeName(at) + target
		}
		if filepath.IsAbs(target) {
			at, target = splitRoot(target)
		}
		rest = filepath.FromSlash(target) + separator + rest
	}
	if isDir {
		t.note(at, filepath.Base(at))
		return at
	}
	t.note(filepath.Dir(at), filepath.Base(at))
	return ""
}

const separator = string(filepath.Separator)

// splitRoot splits an absolute path into the root of its volume and the rest.
func splitRoot(path string) (root, rest string) {
	volume := filepath.VolumeName(path)
	return volume + separator, filepath.FromSlash(path[len(volume):])
}

func (t trail) note(dir, name string) {
	t.dirs[dir] = true
	t.names[strings.ToLower(name)] = true
	t.names[strings.ToLower(filepath.Base(dir))] = true
}
