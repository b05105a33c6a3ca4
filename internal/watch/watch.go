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
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Config says what to watch and how patiently. Only Path must be given.
type Config struct {
	// Path names the file, or a folder that holds exactly one *.yaml or *.yml.
	Path string
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

// validate checks c and fills in what was left out.
func (c *Config) validate() error {
	if c.Path == "" {
		return errors.New("no path is given")
	}
	if c.Debounce < 0 || c.MaxDebounce < 0 || c.Poll < 0 || c.MaxSize < 0 {
		return errors.New("a time or size is negative")
	}
	c.Debounce = orDefault(c.Debounce, defaultDebounce)
	c.MaxDebounce = max(orDefault(c.MaxDebounce, defaultMaxDebounce), c.Debounce)
	c.Poll = orDefault(c.Poll, defaultPoll)
	c.MaxSize = orDefault(c.MaxSize, defaultMaxSize)
	c.What = c.what()
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	return nil
}

func (c *Config) what() string {
	if c.What == "" {
		return "policy"
	}
	return c.What
}

func orDefault[T ~int64](given, otherwise T) T {
	if given == 0 {
		return otherwise
	}
	return given
}

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
	w := &watcher{cfg: cfg, last: last, deliver: deliver, timer: time.NewTimer(0), eyes: newEyes(cfg, open)}
	w.timer.Stop()
	defer w.timer.Stop()
	defer w.eyes.close()
	w.run(ctx)
	return nil
}

// A watcher is the state of one Watch. All of it belongs to the goroutine that
// called Watch.
type watcher struct {
	cfg     Config
	deliver func(File)
	last    [32]byte // of what was delivered last
	asked   bool     // the next finding is delivered even if it is not new
	burst   burst
	timer   *time.Timer // runs while a burst is under way
	eyes    *eyes
}

func (w *watcher) run(ctx context.Context) {
	poll := time.NewTicker(w.cfg.Poll)
	defer poll.Stop()
	w.eyes.open()
	w.glance(ctx)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case event, ok := <-w.eyes.events():
			w.hear(event.Name, ok)
		case err, ok := <-w.eyes.errors():
			w.lose(err, ok)
		case _, ok := <-w.cfg.Trigger:
			w.ask(ctx, ok)
		case <-w.timer.C:
			w.settle(ctx)
		case <-poll.C:
			w.eyes.open()
			w.glance(ctx)
		}
	}
}

// hear takes an event about name.
func (w *watcher) hear(name string, ok bool) {
	switch {
	case !ok:
		w.eyes.close()
		w.stir(false)
	case w.eyes.concerns(name):
		w.stir(true)
	}
}

// lose takes an error of the event source: events were lost, so anything may have
// happened.
func (w *watcher) lose(err error, ok bool) {
	if !ok {
		w.eyes.close()
	} else {
		w.cfg.Log.Debug("events about the "+w.cfg.What+" were lost", "error", err)
	}
	w.stir(ok)
}

// ask takes a trigger.
func (w *watcher) ask(ctx context.Context, ok bool) {
	if !ok {
		w.cfg.Trigger = nil
		return
	}
	w.asked = true
	w.glance(ctx)
}

// glance looks without any event. Something new may be half written, so it only
// begins a burst.
func (w *watcher) glance(ctx context.Context) {
	if w.burst.underWay() {
		return // its end looks as well
	}
	s := w.look()
	if s.Digest == w.last {
		w.finish(ctx, s.File)
		return
	}
	w.burst.seen = s.Digest
	w.stir(false)
}

// stir begins a burst, or has it wait anew after an event.
func (w *watcher) stir(event bool) {
	now := time.Now()
	if !w.burst.underWay() {
		w.burst.since = now
	}
	if event {
		w.burst.event = now
	}
	w.timer.Reset(w.burst.wait(w.cfg, now))
}

// settle looks when a burst has rested, or has lasted for too long.
func (w *watcher) settle(ctx context.Context) {
	w.hearAll()
	s := w.look()
	w.hearAll() // what came while looking was perhaps not seen
	now := time.Now()
	if w.burst.settled(w.cfg, s, s.Digest == w.last, w.eyes.blind, now) {
		w.finish(ctx, s.File)
		return
	}
	w.burst.seen = s.Digest
	w.timer.Reset(w.burst.wait(w.cfg, now))
}

// hearAll takes the events that are there already, at most as many as a queue
// holds.
func (w *watcher) hearAll() {
	for range 1 << 14 {
		select {
		case event, ok := <-w.eyes.events():
			w.hear(event.Name, ok)
		default:
			return
		}
	}
}

// look reads the file, and first sees to it that nothing after the reading is
// missed.
func (w *watcher) look() sight {
	w.eyes.follow(w.cfg.Path)
	return read(w.cfg)
}

// finish ends the burst and delivers what is new or was asked for.
func (w *watcher) finish(ctx context.Context, f File) {
	w.timer.Stop()
	w.burst = burst{}
	if ctx.Err() != nil || f.Digest == w.last && !w.asked {
		return
	}
	w.last, w.asked = f.Digest, false
	w.deliver(f)
}
