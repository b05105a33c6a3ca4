// Package watch tells when the content of one file has changed: a policy that a
// kubelet swaps, an editor saves, or a person moves about.
//
// What decides is always the content. Events of the file system only say when to
// look; a slow poll looks besides, and alone where there are no events. A look
// follows the path anew, through every symbolic link, and watches the folders in
// which it found its way: a watch on the file itself would die with the first
// swap or save.
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"
)

// Config says what to watch and how patiently. Only Path must be given.
type Config struct {
	// Path names the file, or a folder with several *.yaml or *.yml of which one is the file.
	Path string
	// Parts calls open for the path of each file that belongs to the one at path, from its
	// folder, with slashes and without ".."; open returns what the file holds. It does not
	// keep open. nil: none belong to it.
	Parts func(path string, content []byte, open func(name string) ([]byte, error))
	// What the file is, in messages; "" means "policy".
	What string
	// Debounce is how long nothing may happen before the file is read; further
	// events begin it anew. 0 means 200 ms.
	Debounce time.Duration
	// MaxDebounce is how long events may put off a reading. 0 means 2 s; it is
	// raised to Debounce. An empty file, or an error, is put off twice as long.
	MaxDebounce time.Duration
	// Poll is the time between two looks that no event asked for. 0 means 45 s.
	Poll time.Duration
	// MaxSize is the largest file that is delivered, in bytes; a larger one is an
	// error. 0 means 1 MiB and one byte, so that the parser of a file of at most
	// 1 MiB sees that there was more.
	MaxSize int64
	// Trigger asks for a look now, whose result is delivered even when nothing has
	// changed. A result that has changed is delivered when it has settled, after
	// Debounce. It is not received from while deliver runs; a buffer of one keeps a
	// sender from waiting. May be nil, and may be closed.
	Trigger <-chan struct{}
	// Log is told once when changes are seen by polling only. nil discards.
	Log hclog.Logger
}

const (
	defaultDebounce    = 200 * time.Millisecond
	defaultMaxDebounce = 2 * time.Second
	defaultPoll        = 45 * time.Second
	defaultMaxSize     = 1<<20 + 1
)

// A database beside the policy makes thousands of events a second, each of which would wake this process. So where one
// comes that concerns nobody, none is taken for a rest, in which the system makes one of those that are alike. Between
// two rests there is time for what has come meanwhile.
const (
	rest    = 50 * time.Millisecond
	between = time.Millisecond
)

// validate checks c and fills in what was left out.
func (c *Config) validate() error {
	if c.Path == "" {
		return errors.New("no path is given")
	}
	if c.Debounce < 0 || c.MaxDebounce < 0 || c.Poll < 0 || c.MaxSize < 0 {
		return errors.New("a time or size is negative")
	}
	c.Debounce = cmp.Or(c.Debounce, defaultDebounce)
	c.MaxDebounce = max(cmp.Or(c.MaxDebounce, defaultMaxDebounce), c.Debounce)
	c.Poll = cmp.Or(c.Poll, defaultPoll)
	c.MaxSize = cmp.Or(c.MaxSize, defaultMaxSize)
	c.What = c.what()
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	return nil
}

func (c *Config) what() string { return cmp.Or(c.What, "policy") }

// Watch calls deliver each time that the file's digest differs from the one that
// was delivered before, beginning with last, which is [File.Digest] of what the
// caller has from [Read]. That holds for errors too: a new one is delivered once,
// and so is the content that comes after it, even if it is the old one.
//
// deliver is called by the goroutine that called Watch; while it runs nothing is
// looked at, and nothing is lost either. Watch returns nil when ctx ends, and an
// error at once when cfg is wrong.
func Watch(ctx context.Context, cfg Config, last [32]byte, deliver func(File)) error {
	return watchWith(ctx, cfg, last, deliver, openSource)
}

func watchWith(ctx context.Context, cfg Config, last [32]byte, deliver func(File), open func() (*source, error)) error {
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("watching the %s: %w", cfg.what(), err)
	}
	w := &watcher{cfg: cfg, deliver: deliver, newSource: open, source: &source{}, last: last, timer: time.NewTimer(0)}
	w.timer.Stop()
	defer w.timer.Stop()
	defer w.close()
	w.run(ctx)
	return nil
}

// A watcher is the state of one Watch. All of it belongs to the goroutine that called Watch.
type watcher struct {
	cfg       Config
	deliver   func(File)
	newSource func() (*source, error)
	source    *source
	trail     trail    // what is watched
	parts     []string // paths of the files that belong to what was read last
	polling   bool     // a folder is not watched, so that there may be changes without an event
	warned    bool     // that was logged

	rested time.Time        // when the last rest ended
	rests  <-chan time.Time // its end; nil: events are taken

	last  [32]byte // of what was delivered last
	asked bool     // the next finding is delivered even if it is not new

	// A row of changes is delivered as one, a burst.
	began time.Time   // zero: none is under way
	event time.Time   // its last event; zero: there was none yet
	seen  [32]byte    // what was read last
	timer *time.Timer // runs while a burst is under way
}

func (w *watcher) run(ctx context.Context) {
	poll := time.NewTicker(w.cfg.Poll)
	defer poll.Stop()
	w.open()
	w.check(ctx)
	for ctx.Err() == nil {
		events := w.source.events
		if w.rests != nil {
			events = nil
		}
		select {
		case <-ctx.Done():
		case event, ok := <-events:
			w.take(event, ok)
		case w.rested = <-w.rests:
			w.rests = nil
		case err, ok := <-w.source.errors:
			if ok {
				w.cfg.Log.Debug("events about the "+w.cfg.What+" were lost", "error", err)
			} else {
				w.close()
			}
			w.extend(ok) // anything may have happened
		case _, ok := <-w.cfg.Trigger:
			if !ok {
				w.cfg.Trigger = nil
				continue
			}
			w.asked = true
			w.check(ctx)
		case <-w.timer.C:
			w.settle(ctx)
		case <-poll.C:
			w.open()
			w.check(ctx)
		}
	}
}

// take takes an event; without ok the source has ended.
func (w *watcher) take(event fsnotify.Event, ok bool) {
	if !ok {
		w.close()
	}
	if !ok || w.trail.concerns(event.Name) {
		w.extend(ok)
	} else if w.rests == nil && time.Since(w.rested) >= between {
		w.rests = time.After(min(rest, w.cfg.Debounce/4))
	}
}

// check reads the file though there was no event. What is new may be half written, so it only begins a burst.
func (w *watcher) check(ctx context.Context) {
	if !w.began.IsZero() {
		return // its end reads as well
	}
	r := w.read()
	if r.Digest == w.last {
		w.finish(ctx, r.File)
		return
	}
	w.seen = r.Digest
	w.extend(false)
}

// extend begins a burst, or has it wait anew after an event.
func (w *watcher) extend(event bool) {
	now := time.Now()
	if w.began.IsZero() {
		w.began = now
	}
	if event {
		w.event = now
	}
	w.wait(now)
}

// wait sets the timer: to Debounce, or to when a burst has lasted for MaxDebounce, or for twice that.
func (w *watcher) wait(now time.Time) {
	left := w.cfg.MaxDebounce - now.Sub(w.began)
	if left <= 0 {
		left += w.cfg.MaxDebounce
	}
	w.timer.Reset(min(w.cfg.Debounce, max(left, time.Millisecond)))
}

// settle reads the file when a burst has rested, or has lasted for too long.
func (w *watcher) settle(ctx context.Context) {
	w.takeAll()
	r := w.read()
	w.takeAll() // what came while reading was perhaps not seen
	now := time.Now()
	if w.settled(r, now) {
		w.finish(ctx, r.File)
		return
	}
	w.seen = r.Digest
	w.wait(now)
}

// takeAll takes the events that are there already, at most as many as a queue holds.
func (w *watcher) takeAll() {
	for range 1 << 14 {
		select {
		case event, ok := <-w.source.events:
			w.take(event, ok)
		default:
			return
		}
	}
}

// settled reports whether what was read may be taken for what is meant, and not for a file half written or a path half
// swapped.
//
// A file that has rested since its last event is. Where no events came, what was read twice is; so with an empty file
// and an error, the two halves of a save. If events never end, MaxDebounce decides for a file that says something, and
// twice that for everything else. Nothing waits for what is known already.
func (w *watcher) settled(r reading, now time.Time) bool {
	lasted := now.Sub(w.began)
	quiet := now.Sub(w.event) >= w.cfg.Debounce
	whole := r.Err == nil && len(r.Content) > 0 && !r.broken
	switch {
	case lasted >= 2*w.cfg.MaxDebounce:
		return true
	case r.Digest == w.last:
		return quiet || lasted >= w.cfg.MaxDebounce
	case quiet && r.rested(w.cfg.Debounce):
		return r.Digest == w.seen || whole && !w.polling && !w.event.IsZero()
	default:
		return lasted >= w.cfg.MaxDebounce && whole && r.steady
	}
}

// read reads the file, and first sees to it that nothing after the reading is missed. Which parts it has is known when
// it was read: where they are others than before, it is read again.
func (w *watcher) read() (r reading) {
	for range 8 {
		if w.source.add != nil {
			w.follow()
		}
		r = w.cfg.read()
		parts := r.partPaths()
		if slices.Equal(parts, w.parts) {
			break
		}
		w.parts = parts
	}
	return r
}

// finish ends the burst and delivers what is new or was asked for.
func (w *watcher) finish(ctx context.Context, f File) {
	w.timer.Stop()
	w.began, w.event, w.seen = time.Time{}, time.Time{}, [32]byte{}
	if ctx.Err() != nil || f.Digest == w.last && !w.asked {
		return
	}
	w.last, w.asked = f.Digest, false
	w.deliver(f)
}
