package watch

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"
)

// A source gives the events of folders.
type source struct {
	events <-chan fsnotify.Event
	errors <-chan error
	add    func(dir string) error
	remove func(dir string) error
	close  func()
}

// openSource gives the events of this system.
func openSource() (*source, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &source{events: w.Events, errors: w.Errors, add: w.Add, remove: w.Remove, close: func() { end(w) }}, nil
}

// end closes w and waits until its goroutine has ended.
func end(w *fsnotify.Watcher) {
	_ = w.Close() // nothing was written through it
	for range w.Events {
	}
}

// eyes keep the watches on the folders along a path.
type eyes struct {
	newSource func() (*source, error)
	log       hclog.Logger
	what      string        // for the log
	poll      time.Duration // for the log: how often is looked without events

	source *source                // nil without events
	trail  trail                  // what is watched
	dirs   map[string]fs.FileInfo // the folders with a watch, as they were when it was set
	blind  bool                   // at least one folder has none
	warned bool
}

func newEyes(cfg Config, open func() (*source, error)) *eyes {
	return &eyes{newSource: open, log: cfg.Log, what: cfg.what(), poll: cfg.Poll, dirs: map[string]fs.FileInfo{}}
}

// open asks the system for events, if there are none yet.
func (e *eyes) open() {
	if e.source != nil {
		return
	}
	source, err := e.newSource()
	if err != nil {
		e.see(err)
		return
	}
	e.source = source
}

// close ends the events; open begins them again.
func (e *eyes) close() {
	if e.source == nil {
		return
	}
	e.source.close()
	e.source = nil
	e.blind = true
	clear(e.dirs)
}

func (e *eyes) events() <-chan fsnotify.Event {
	if e.source == nil {
		return nil
	}
	return e.source.events
}

func (e *eyes) errors() <-chan error {
	if e.source == nil {
		return nil
	}
	return e.source.errors
}

// concerns reports whether an event about name may mean a change.
func (e *eyes) concerns(name string) bool { return e.trail.concerns(name) }

// follow watches the folders along path as it leads now. It surveys the path
// again after the watches were set, since it may lead elsewhere by then.
func (e *eyes) follow(path string) {
	if e.source == nil {
		return
	}
	path = absolute(path)
	found := survey(path)
	for range 8 {
		e.watch(found)
		again := survey(path)
		if again.equal(found) {
			return
		}
		found = again
	}
}

// watch watches the folders of t and no others. All are set again each time: a
// watch dies unseen with its folder, and the new folder may look like the old.
func (e *eyes) watch(t trail) {
	e.trail = t
	for dir := range e.dirs {
		if !t.dirs[dir] {
			e.drop(dir)
		}
	}
	var failed error
	for dir := range t.dirs {
		if err := e.add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
		}
	}
	e.see(failed)
}

func (e *eyes) add(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if before, ok := e.dirs[dir]; ok && !os.SameFile(before, info) {
		e.drop(dir) // else the watch on the other folder stays, unseen
	}
	if err := e.source.add(dir); err != nil {
		return err
	}
	e.dirs[dir] = info
	return nil
}

func (e *eyes) drop(dir string) {
	delete(e.dirs, dir)
	_ = e.source.remove(dir) // it is gone already if the folder is
}

// see takes whether all is watched, and says once that it is not.
func (e *eyes) see(err error) {
	e.blind = err != nil
	if err == nil || e.warned {
		return
	}
	e.warned = true
	e.log.Warn("changes of the "+e.what+" are seen by polling only; raise the system's limits of watches and open files",
		"error", err, "every", e.poll.String())
}
