package durable

import (
	"context"
	"errors"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// Bounds is how much a store may keep; 0: that is not bounded.
type Bounds struct {
	Runs int
	Size int64 // in bytes, less those that a file takes for nothing
}

// stock is what is known of how much there is.
type stock struct {
	crowded chan struct{} // there is to be looked, and perhaps made room

	mu    sync.Mutex    // guards what follows
	last  journal.Stock // when it was counted last; zero: never
	since int           // runs that have begun since, and some that are counted in last
	next  int           // so many have begun when it is counted again
	stuck bool          // it takes more than it may, and nothing can go
}

// Full reports whether no run can begin: those that have not ended fill the store by themselves.
func (s *Store) Full() bool {
	s.stock.mu.Lock()
	defer s.stock.mu.Unlock()
	full := s.fullLocked()
	if full { // or some have ended since
		s.look()
	}
	return full
}

func (s *Store) fullLocked() bool {
	most := s.cfg.Bounds.Runs
	return s.stock.stuck || most > 0 && s.stock.last.Live+s.stock.since >= most
}

// Crowded tells that [Store.Bound] may have something to do.
func (s *Store) Crowded() <-chan struct{} { return s.stock.crowded }

func (s *Store) look() {
	select {
	case s.stock.crowded <- struct{}{}:
	default:
	}
}

// entered counts a run that begins.
func (s *Store) entered() {
	s.stock.mu.Lock()
	defer s.stock.mu.Unlock()
	if s.stock.since++; s.cfg.Bounds.Runs > 0 && s.stock.since >= s.stock.next {
		s.look()
	}
}

// What is removed at a time, before it is looked again how much there is, and what part of a bound is made room for once
// it is reached: it is not to be looked again for each run.
const (
	atOnce = 1000
	spare  = 50
)

// Bound has nothing kept any more of runs that have ended, those first that ended first, as far as more is kept than may
// be. One that has not ended stays. It returns how many it was.
func (s *Store) Bound(ctx context.Context) (n int, err error) {
	for s.mayExceed() || n > 0 {
		now, err := s.count(ctx)
		if err != nil {
			return n, err
		}
		excess := s.excess(&now, n > 0)
		if excess == 0 {
			return n, nil
		}
		removed, err := s.removeEnded(ctx, excess)
		if n += removed; err != nil {
			return n, err
		}
		if removed == 0 {
			s.setStuck(&now)
			return n, nil
		}
	}
	return n, nil
}

// Count counts what there is, so that [Store.Full] knows from the beginning.
func (s *Store) Count(ctx context.Context) error {
	if s.cfg.Bounds == (Bounds{}) {
		return nil
	}
	_, err := s.count(ctx)
	return err
}

// mayExceed reports whether there may be more than there is to be.
func (s *Store) mayExceed() bool {
	s.stock.mu.Lock()
	defer s.stock.mu.Unlock()
	return s.cfg.Bounds.Size > 0 || s.cfg.Bounds.Runs > 0 && (s.fullLocked() || s.stock.since >= s.stock.next)
}

// count counts what there is, and what waits to be written.
func (s *Store) count(ctx context.Context) (now journal.Stock, err error) {
	s.stock.mu.Lock()
	written := s.stock.since
	s.stock.mu.Unlock()
	if err := s.wait(ctx); err != nil {
		return now, err
	}
	if now, err = s.cfg.Journal.Stock(ctx); err != nil {
		return now, err
	}
	s.stock.mu.Lock()
	defer s.stock.mu.Unlock()
	s.stock.last, s.stock.since = now, s.stock.since-written
	s.stock.next = max((s.cfg.Bounds.Runs-now.Runs)/2, 1)
	s.stock.stuck = s.stock.stuck && now.Used > s.cfg.Bounds.Size
	return now, nil
}

// wait waits until all is written that was handed over.
func (s *Store) wait(ctx context.Context) error {
	t, err := s.write.Submit(journal.Change{}, journal.Now)
	if err != nil {
		return err
	}
	return done(ctx, t)
}

// done waits for a change, and returns what became of it.
func done(ctx context.Context, t *journal.Ticket) error {
	select {
	case <-t.Done():
		return t.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// setStuck has no run begin where more is taken than may be, and nothing can go.
func (s *Store) setStuck(now *journal.Stock) {
	s.stock.mu.Lock()
	defer s.stock.mu.Unlock()
	s.stock.stuck = s.cfg.Bounds.Size > 0 && now.Used > s.cfg.Bounds.Size
}

// excess is how many runs are to go now. Where room is made already, it is made for some more.
func (s *Store) excess(now *journal.Stock, making bool) (runs int) {
	most := s.cfg.Bounds
	if making {
		most.Runs -= most.Runs / spare
		most.Size -= most.Size / spare
	}
	return most.Excess(now)
}

// Excess is how many runs are to go before it is looked again how much there is, 0 for none.
func (b Bounds) Excess(now *journal.Stock) (runs int) {
	if b.Runs > 0 {
		runs = max(now.Runs-b.Runs, 0)
	}
	if runs == 0 && b.Size > 0 && now.Used > b.Size {
		runs = max(now.Runs/spare, 1)
	}
	return min(runs, atOnce)
}

// removeEnded removes so many runs that have ended, and waits until they are gone.
func (s *Store) removeEnded(ctx context.Context, n int) (removed int, err error) {
	ids, err := s.cfg.Journal.Ended(ctx, n)
	if err != nil {
		return 0, err
	}
	var gone []*journal.Ticket
	for _, id := range ids {
		r, err := s.cfg.Journal.Take(ctx, id)
		if errors.Is(err, journal.ErrNone) {
			continue
		} else if err != nil {
			return 0, err
		}
		t, err := s.write.Submit(journal.Change{Run: id, Tenure: r.Tenure, Remove: true}, journal.Now)
		if err != nil {
			return 0, err
		}
		gone = append(gone, t)
	}
	for _, t := range gone {
		if err := done(ctx, t); err == nil {
			removed++
		} else if ctx.Err() != nil {
			return removed, err
		}
	}
	return removed, nil
}
