package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/redact"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
)

// AuditConfig says where the audit goes, and what it tells. Either Path or Out
// must be set.
type AuditConfig struct {
	// Path is a file that lines are appended to. Where it is moved away, or
	// removed, another one is begun.
	Path string
	// Out is written to instead. It is never closed.
	Out io.Writer
	// Instance tells the lines of one process from those of others; "": they tell nothing of that.
	Instance string
	// Arguments has calls recorded with their arguments.
	Arguments bool
	// Redact is what of them is not told; nil: all is.
	Redact *redact.Redaction
	// Queue is how many bytes may wait to be written before requests do; 0: 1 MiB.
	Queue int
	Log   hclog.Logger // nil: none
}

// Audit writes a line of JSON for each decision. No line is lost while the process
// runs: what cannot be written now is tried again, and requests wait. Requests that
// are denied before they reach a session never wait, and none waits for them: they
// are counted, and written when the writer comes by. It is safe for concurrent use,
// and a [observe.Auditor]. One goroutine writes, and ends with [Audit.Shutdown].
type Audit struct {
	cfg     AuditConfig
	sink    *sink
	wake    chan struct{}
	stop    chan struct{} // closed: what cannot be written is given up
	done    chan struct{}
	waiting atomic.Int64 // bytes of the queue that are not written yet
	written atomic.Uint64
	attempt atomic.Pointer[attempt] // the writing under way, nil while there is none

	mu      sync.Mutex // guards what follows
	queue   []byte
	denials denials[[]byte]
	number  uint64        // of the last line
	freed   chan struct{} // closed when some was written; made on demand
	closed  bool
}

// NewAudit opens the file.
func NewAudit(cfg AuditConfig) (*Audit, error) {
	if cfg.Queue <= 0 {
		cfg.Queue = 1 << 20
	}
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	a := &Audit{cfg: cfg, sink: &sink{path: cfg.Path, out: cfg.Out},
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	if err := a.sink.open(); err != nil {
		return nil, fmt.Errorf("opening the audit: %w", err)
	}
	a.denials.first = lineOfDenied
	go a.run()
	return a, nil
}

// Room implements observe.Auditor.
func (a *Audit) Room() bool { return a.waiting.Load() < int64(a.cfg.Queue) }

// Await implements observe.Auditor.
func (a *Audit) Await(ctx context.Context) {
	for {
		a.mu.Lock()
		if a.Room() {
			a.mu.Unlock()
			return
		}
		if a.freed == nil {
			a.freed = make(chan struct{})
		}
		freed := a.freed
		a.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return
		}
	}
}

// Written returns how many lines were written.
func (a *Audit) Written() uint64 { return a.written.Load() }

// Decided implements observe.Auditor.
func (a *Audit) Decided(d observe.Decision) { a.Begin(d) }

// Begin implements observe.Journal.
func (a *Audit) Begin(d observe.Decision) (number uint64) {
	l := newLine("decision")
	l.decision(&d)
	if m := d.Message; a.cfg.Arguments && m != nil && m.P.Arguments.Present() {
		l.arguments(m.Bytes(m.P.Arguments), a.cfg.Redact)
	}
	return a.push(l)
}

// End implements observe.Journal.
func (a *Audit) End(number uint64, of observe.Peer, op *observe.Operation) {
	l := newLine("outcome")
	l.ended(number, of, op)
	a.push(l)
}

// Denied records an HTTP request that was refused before a session saw what it says. It waits for nothing.
func (a *Audit) Denied(d Denial) {
	a.mu.Lock()
	due := a.denials.add(d, time.Now())
	a.mu.Unlock()
	if due {
		a.nudge()
	}
}

// Entered implements observe.Auditor.
func (a *Audit) Entered(e observe.Entry) {
	event := "entry"
	if e.Verb != "" {
		event = "verb"
	}
	l := newLine(event)
	l.entry(&e)
	a.push(l)
}

// push gives a line the next number and queues it.
func (a *Audit) push(l *line) (number uint64) {
	defer l.free()
	now := time.Now()
	a.mu.Lock()
	a.number++
	number = a.number
	before := len(a.queue)
	a.queue = l.appendTo(a.queue, a.cfg.Instance, number, now)
	a.waiting.Add(int64(len(a.queue) - before))
	a.mu.Unlock()
	a.nudge()
	return number
}

// nudge wakes the writer.
func (a *Audit) nudge() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run writes what is queued, and what was denied.
func (a *Audit) run() {
	defer close(a.done)
	defer a.sink.close()
	var spare []byte
	var due <-chan time.Time // the next line on denials
	for more := true; more; {
		select {
		case <-a.wake:
		case <-due:
		}
		var lines, denied []byte
		lines, denied, due, more = a.take(spare)
		if !a.write(lines, true) || !a.write(denied, false) {
			return
		}
		spare = lines[:0]
	}
}

// take empties the queue, and leaves it a buffer to go on with. What was denied
// comes behind it, as far as that is due, and makes nobody wait. It reports false
// when nothing more will come.
func (a *Audit) take(spare []byte) (lines, denied []byte, due <-chan time.Time, more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cap(spare) > a.cfg.Queue {
		spare = nil
	}
	lines, a.queue = a.queue, spare
	now := time.Now()
	for _, c := range a.denials.take(now, a.closed) {
		l := newLineOf(&c)
		a.number++
		denied = l.appendTo(denied, a.cfg.Instance, a.number, now)
		l.free()
	}
	return lines, denied, a.denials.soon(now), !a.closed
}

// The pauses between attempts to write.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// attempt is a writing of lines, which may need several tries.
type attempt struct {
	since time.Time
	err   error // of the last try, nil if there is none yet
}

// stuckAfter is how long writing may take before it counts as blocked.
const stuckAfter = 2 * time.Second

// Blocked returns why the audit cannot be written just now, nil where it can. While
// it cannot, calls wait as soon as the queue is full.
func (a *Audit) Blocked() error {
	t := a.attempt.Load()
	switch {
	case t == nil:
		return nil
	case t.err != nil:
		err := t.err
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			err = at.Err // where the file is concerns nobody who asks
		}
		return fmt.Errorf("it cannot be written, and calls wait: %w", err)
	case time.Since(t.since) > stuckAfter:
		return errors.New("a line has been waiting for seconds to be taken, and calls wait: does anybody read what the audit is written to?")
	}
	return nil
}

// write writes whole lines, however often that has to be tried; queued says that
// they are of the queue. It reports false where the end came first.
func (a *Audit) write(lines []byte, queued bool) bool {
	if len(lines) == 0 {
		return true
	}
	begun := time.Now()
	a.attempt.Store(&attempt{since: begun})
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		n, count, err := a.sink.write(lines)
		a.written.Add(uint64(count))
		if queued {
			a.free(n)
		}
		if lines = lines[n:]; err == nil {
			a.attempt.Store(nil)
			return true
		}
		a.attempt.Store(&attempt{since: begun, err: err})
		if pause == firstPause {
			a.cfg.Log.Error("writing the audit: requests wait until it can be written", "error", err)
		}
		select {
		case <-time.After(pause):
		case <-a.stop:
			return false
		}
	}
}

// free takes what was written off the queue, and lets go on who waits for room.
func (a *Audit) free(bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting.Add(int64(-bytes))
	if a.freed != nil && a.Room() {
		close(a.freed)
		a.freed = nil
	}
}

// Shutdown writes what is queued, for as long as ctx lasts. Nothing may be
// recorded any more.
func (a *Audit) Shutdown(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.nudge()
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
	}
	close(a.stop)
	return fmt.Errorf("writing the last of the audit: %d bytes of it, and what was denied meanwhile, could not be written in time", a.waiting.Load())
}

var _ observe.Auditor = (*Audit)(nil)

// sink is what the audit is written to. It is used by one goroutine.
type sink struct {
	path string    // "" where out is given
	out  io.Writer // the file, else what was given

	file *os.File
	info fs.FileInfo
	part int // bytes of a line that the file has the beginning of
}

// open opens the file, and creates it for its owner alone.
func (s *sink) open() error {
	if s.path == "" {
		return nil
	}
	if info, err := os.Stat(s.path); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return fmt.Errorf("%s is a pipe: give a file, or stderr", s.path)
	}
	file, err := os.OpenFile(s.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; make its folder first", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; let this user write there", err)
	case err != nil:
		return err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return err
	}
	s.close()
	s.file, s.info, s.out, s.part = file, info, file, 0
	return nil
}

// follow opens the file anew if another one, or none, has its name by now.
func (s *sink) follow() error {
	if s.path == "" {
		return nil
	}
	if now, err := os.Stat(s.path); err == nil && os.SameFile(now, s.info) {
		return nil
	}
	return s.open()
}

// write writes lines, and returns how much of them is done with: whole lines, and
// how many those are. A line that was begun is gone on with, or written anew where
// the file is another one.
func (s *sink) write(lines []byte) (done, count int, err error) {
	if err := s.follow(); err != nil {
		return 0, 0, err
	}
	n, err := s.out.Write(lines[s.part:])
	n += s.part
	done = bytes.LastIndexByte(lines[:n], '\n') + 1
	s.part = n - done
	return done, bytes.Count(lines[:done], []byte{'\n'}), err
}

func (s *sink) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}
