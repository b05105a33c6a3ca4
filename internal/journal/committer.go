package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// CommitterConfig is how a Committer works.
type CommitterConfig struct {
	Store  Store
	Delay  time.Duration   // for how long what can wait does; 0: 100ms
	Max    int             // changes that may wait, beyond those that have to be taken; 0: 10,000
	Wrote  func(Wrote)     // is told of each commit; nil: nobody is
	Retry  time.Duration   // before the first try after one that failed, doubled for each one more, to a second; 0: 50ms
	Health func(err error) // is told when the store cannot be used, and, with nil, when it can again; nil: nobody is
}

// Wrote is what became of a commit.
type Wrote struct {
	Changes, Records int
	Bytes            int // of the records
	Took             time.Duration
	Err              error // why none of it is known to be written: it is tried again
}

// Bounds of a commit: what is beyond goes with the next one.
const (
	maxCommitChanges = 1024
	maxCommitBytes   = 4 << 20
)

// Committer writes changes to a store in the order in which they come, and one commit after the other: what comes
// while one runs is the next. Where the store cannot be used it tries again until it can: a change is never written
// twice, whatever has become of the commit that failed. It is safe for concurrent use.
type Committer struct {
	cfg  CommitterConfig
	wake chan struct{} // there is something to write, or nothing will come any more
	ends chan struct{} // closed: give up
	done chan struct{}

	endsOnce sync.Once

	mu     sync.Mutex // guards what follows
	queue  []*Ticket
	hurry  bool      // somebody waits for one of them
	oldest time.Time // when the first came
	down   error     // why the store cannot be used now; nil: it can
	closed bool
}

// Ticket is a change that is to be written.
type Ticket struct {
	change Change
	done   chan struct{}
	err    error
}

// Done is closed when the change is durable, or can never be.
func (t *Ticket) Done() <-chan struct{} { return t.done }

// IsDone reports whether Done is closed.
func (t *Ticket) IsDone() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Err is nil once the change is durable, [ErrConflict] or [ErrNone] if it cannot be made, and [ErrClosed] if it is
// not known to be written. It is to be asked once Done is closed.
func (t *Ticket) Err() error { return t.err }

// ErrFull means that too many changes wait.
var ErrFull = errors.New("too much waits to be written")

// NewCommitter returns a Committer that writes until it is closed.
func NewCommitter(c CommitterConfig) *Committer {
	if c.Delay == 0 {
		c.Delay = 100 * time.Millisecond
	}
	if c.Max == 0 {
		c.Max = 10_000
	}
	if c.Retry == 0 {
		c.Retry = 50 * time.Millisecond
	}
	w := &Committer{cfg: c, wake: make(chan struct{}, 1), ends: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	return w
}

// When says how soon a change is written, and whether there is always room for it.
type When uint8

const (
	Now   When = iota // with the next commit; it is refused while the store cannot be used
	Must              // likewise, and never refused: for the end of what was let begin
	Later             // with the next commit of another, or soon
	Soon              // likewise, and never refused: what follows it is numbered already
)

// Submit hands a change over, which nobody may alter any more. It does not block. The error is [ErrFull], [ErrClosed],
// or why the store cannot be used now: then the change is not written.
func (w *Committer) Submit(c Change, when When) (*Ticket, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	t := &Ticket{change: c, done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return nil, ErrClosed
	case (when == Now || when == Later) && w.down != nil:
		return nil, w.down
	case (when == Now || when == Later) && len(w.queue) >= w.cfg.Max:
		return nil, ErrFull
	}
	if len(w.queue) == 0 {
		w.oldest = time.Now()
	}
	w.queue = append(w.queue, t)
	waited := when == Now || when == Must
	if waited && !w.hurry || len(w.queue) == 1 || len(w.queue) == maxCommitChanges {
		w.hurry = w.hurry || waited
		w.signal()
	}
	return t, nil
}

func (w *Committer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Waiting is how many changes wait, and why the store cannot be used now.
func (w *Committer) Waiting() (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue), w.down
}

// Room reports whether there is room for what need not be written.
func (w *Committer) Room() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.closed && w.down == nil && len(w.queue) < w.cfg.Max
}

// Close takes nothing more, and returns when all is written, or the context has ended: the error says how much is not
// known to be. It does not close the store.
func (w *Committer) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed, w.hurry = true, true
	w.mu.Unlock()
	w.signal()
	select {
	case <-w.done:
	case <-ctx.Done():
		w.endsOnce.Do(func() { close(w.ends) })
		<-w.done
	}
	if n, err := w.Waiting(); n > 0 {
		return fmt.Errorf("%d changes are not known to be written: %w", n, err)
	}
	return nil
}

// run writes until the end.
func (w *Committer) run() {
	defer close(w.done)
	for batch := w.take(); batch != nil; batch = w.take() {
		err := w.commit(batch)
		for retry := w.cfg.Retry; err != nil; retry = min(2*retry, time.Second) {
			w.setHealth(err)
			if !w.sleep(retry) {
				w.giveUp(batch)
				return
			}
			if err = w.settle(batch); err == nil {
				err = w.commit(batch)
			}
		}
		w.setHealth(nil)
	}
}

// take waits for what is to be written next, nil for nothing any more.
func (w *Committer) take() []*Ticket {
	for {
		w.mu.Lock()
		wait, closed := time.Duration(-1), w.closed
		if len(w.queue) > 0 {
			wait = time.Until(w.oldest.Add(w.cfg.Delay))
			if w.hurry || closed || wait <= 0 || len(w.queue) >= maxCommitChanges {
				batch := w.cutLocked()
				w.mu.Unlock()
				return batch
			}
		}
		w.mu.Unlock()
		switch {
		case wait >= 0:
			timer := time.NewTimer(wait)
			select {
			case <-w.wake:
			case <-timer.C:
			}
			timer.Stop()
		case closed:
			return nil
		default:
			<-w.wake
		}
	}
}

// cutLocked takes the next commit off the queue. What takes records away is the first of one: settle has to find those
// that came before it.
func (w *Committer) cutLocked() []*Ticket {
	n, size := 0, 0
	for n < len(w.queue) && n < maxCommitChanges && (n == 0 || size < maxCommitBytes && !w.queue[n].change.takes()) {
		for i := range w.queue[n].change.Records {
			size += len(w.queue[n].change.Records[i].Bytes)
		}
		n++
	}
	batch := w.queue[:n:n]
	if w.queue = w.queue[n:]; len(w.queue) == 0 {
		w.queue, w.hurry = nil, w.closed
	}
	return batch
}

// takes reports whether a change takes records away.
func (c *Change) takes() bool { return c.Cut != 0 || c.Remove }

// commit tries a commit. The tickets that it has are done then.
func (w *Committer) commit(batch []*Ticket) error {
	var changes []Change
	wrote := Wrote{}
	var open []*Ticket
	for _, t := range batch {
		if t.IsDone() {
			continue
		}
		open, changes = append(open, t), append(changes, t.change)
		for i := range t.change.Records {
			wrote.Bytes += len(t.change.Records[i].Bytes)
		}
		wrote.Records += len(t.change.Records)
	}
	if len(open) == 0 {
		return nil
	}
	begun := time.Now()
	each, err := w.cfg.Store.Commit(context.Background(), changes)
	wrote.Changes, wrote.Took, wrote.Err = len(changes), time.Since(begun), err
	if err == nil {
		w.setHealth(nil) // before anybody goes on who has waited for it
		for i, t := range open {
			t.finish(each[i])
		}
	}
	if w.cfg.Wrote != nil {
		w.cfg.Wrote(wrote)
	}
	return err
}

func (t *Ticket) finish(err error) {
	stale := AsStale(err)
	if stale != nil {
		err = nil
	}
	if t.err = err; err == nil && t.change.Then != nil {
		t.change.Then()
	}
	if t.change.Swapped != nil {
		for i := range t.change.Objects {
			if o := &t.change.Objects[i]; o.Swap {
				t.change.Swapped(o, err == nil && !stale.has(o))
			}
		}
	}
	close(t.done)
}

func (s *Stale) has(o *Object) bool {
	return s != nil && slices.ContainsFunc(s.Objects, func(x Object) bool { return x.Kind == o.Kind && x.Name == o.Name })
}

// settle finds out which changes of a commit that failed were made all the same: those whose records are in the store, and
// those without whose objects were swapped. Another change without records comes to the same when it is made again.
func (w *Committer) settle(batch []*Ticket) error {
	for _, t := range batch {
		c := &t.change
		records := c.Begin != nil || len(c.Records) > 0 || c.Remove
		swaps := slices.ContainsFunc(c.Objects, func(o Object) bool { return o.Swap })
		if t.IsDone() || !records && !swaps {
			continue
		}
		made, err := records, error(nil)
		if records {
			made, err = madeRecords(context.Background(), w.cfg.Store, c)
		}
		var stale *Stale
		if err == nil && swaps && (made || !records) {
			stale, err = unswapped(context.Background(), w.cfg.Store, batch, t)
		}
		switch {
		case err != nil:
			return err
		case made && stale != nil:
			t.finish(stale)
		case made || !records && stale == nil:
			t.finish(nil)
		}
	}
	return nil
}

// unswapped are the objects of a change that the store does not have as the change, or what comes after it in the commit, has left
// them; nil: it has all. One that another process has swapped since is taken for one that was not.
func unswapped(ctx context.Context, s Store, batch []*Ticket, t *Ticket) (*Stale, error) {
	var stale *Stale
	for i := range t.change.Objects {
		o := &t.change.Objects[i]
		if !o.Swap {
			continue
		}
		is, err := s.Object(ctx, o.Kind, o.Name)
		if err != nil && !errors.Is(err, ErrNone) {
			return nil, err
		}
		if !leads(batch[slices.Index(batch, t):], o, is) {
			if stale == nil {
				stale = &Stale{}
			}
			stale.Objects = append(stale.Objects, *o)
		}
	}
	return stale, nil
}

// leads reports whether a swap, and those that follow it in a commit, make an object what it is.
func leads(from []*Ticket, o *Object, is []byte) bool {
	for _, t := range from {
		for _, x := range t.change.Objects {
			if x.Swap && x.Kind == o.Kind && x.Name == o.Name && SameBytes(x.Bytes, is) {
				return true
			}
		}
	}
	return false
}

// SameBytes reports whether two objects have the same bytes; nil is one that is not there.
func SameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// madeRecords reports whether a change that has a run begin or end, or has records, was made.
func madeRecords(ctx context.Context, s Store, c *Change) (bool, error) {
	n := len(c.Records)
	if n == 0 {
		_, err := s.Row(ctx, c.Run)
		if errors.Is(err, ErrNone) {
			return c.Remove, nil
		}
		return c.Begin != nil, err
	}
	last := &c.Records[n-1]
	kept, err := s.Records(ctx, c.Run, last.Seq-1, 1)
	if errors.Is(err, ErrNone) {
		return false, nil
	}
	return len(kept) == 1 && kept[0].Seq == last.Seq && kept[0].Hash == last.Hash, err
}

func (w *Committer) setHealth(err error) {
	w.mu.Lock()
	changed := (err == nil) != (w.down == nil)
	w.down = err
	w.mu.Unlock()
	if changed && w.cfg.Health != nil {
		w.cfg.Health(err)
	}
}

// sleep waits, and reports whether there is still time.
func (w *Committer) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.ends:
		return false
	}
}

// giveUp leaves what is not known to be written.
func (w *Committer) giveUp(batch []*Ticket) {
	w.mu.Lock()
	left := slices.DeleteFunc(append(batch, w.queue...), (*Ticket).IsDone)
	w.queue = left
	w.mu.Unlock()
	for _, t := range left { // who is told may be about to submit something
		t.finish(ErrClosed)
	}
}
