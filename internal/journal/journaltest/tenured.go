package journaltest

import (
	"context"
	"slices"
	"sync"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// open opens the store of a place. Tenures are what the suite does not tell of: it writes what it has begun or taken.
func open(t rapid.TB, home Home) journal.Store {
	return own(home.Open(t))
}

// own returns a store that writes by the tenures of a shared one, or the store, where it is none.
func own(s journal.Store) journal.Store {
	if shared, ok := s.(journal.Shared); ok {
		return &tenured{Shared: shared, by: map[string]journal.Tenure{}}
	}
	return s
}

type tenured struct {
	journal.Shared
	mu sync.Mutex                // guards what follows
	by map[string]journal.Tenure // of runs that were begun or taken
}

func (s *tenured) Commit(ctx context.Context, changes []journal.Change) ([]error, error) {
	changes = slices.Clone(changes)
	s.mu.Lock()
	for i := range changes {
		c := &changes[i]
		by, there := s.by[c.Run]
		if c.Begin != nil && !there {
			by = journal.Tenure{Lease: s.Lease(), Fence: 1}
			s.by[c.Run] = by
		}
		if c.Tenure = by; c.Remove {
			delete(s.by, c.Run)
		}
	}
	s.mu.Unlock()
	return s.Shared.Commit(ctx, changes)
}

func (s *tenured) Take(ctx context.Context, run string) (journal.Row, error) {
	r, err := s.Shared.Take(ctx, run)
	if err == nil {
		s.mu.Lock()
		s.by[run] = r.Tenure
		s.mu.Unlock()
	}
	return plain(r), err
}

func (s *tenured) Row(ctx context.Context, run string) (journal.Row, error) {
	r, err := s.Shared.Row(ctx, run)
	return plain(r), err
}

func (s *tenured) Find(ctx context.Context, k journal.Key) (journal.Row, error) {
	r, err := s.Shared.Find(ctx, k)
	return plain(r), err
}

func (s *tenured) List(ctx context.Context, q journal.Query) ([]journal.Row, error) {
	all, err := s.Shared.List(ctx, q)
	for i := range all {
		all[i] = plain(all[i])
	}
	return all, err
}

// plain is a row as stores have it that are not shared.
func plain(r journal.Row) journal.Row {
	r.Tenure = journal.Tenure{}
	return r
}
