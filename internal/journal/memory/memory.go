// Package memory keeps runs in the process alone, and of all their records the last ones: what is kept ends with it.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// Store implements [journal.Store].
type Store struct {
	max int

	mu      sync.RWMutex // guards what follows
	runs    map[string]*kept
	byKey   map[journal.Key][]*kept // in the order in which they began
	objects map[objectName]journal.Object
	order   []string // the run of each record that is kept, oldest first; some are cut already
	records int
	closed  bool
}

type kept struct {
	row     journal.Row
	records []journal.Record
}

type objectName struct{ kind, name string }

var _ journal.Store = (*Store)(nil)

// New returns a store that keeps at most so many records of all runs, 0 for all: the oldest goes for a new one.
func New(maxRecords int) *Store {
	return &Store{max: maxRecords, runs: map[string]*kept{}, byKey: map[journal.Key][]*kept{}, objects: map[objectName]journal.Object{}}
}

// Commit implements [journal.Store].
func (s *Store) Commit(_ context.Context, changes []journal.Change) ([]error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, journal.ErrClosed
	}
	if err := journal.CheckAll(changes); err != nil {
		return nil, err
	}
	each := make([]error, len(changes))
	for i := range changes {
		each[i] = s.change(&changes[i])
	}
	return each, nil
}

func (s *Store) change(c *journal.Change) error {
	r := s.runs[c.Run]
	switch {
	case c.Run == "":
	case c.Begin == nil && r == nil:
		return journal.ErrNone
	case c.Begin != nil:
		if last := s.last(c.Begin.Key); r != nil || last != nil && last.row.Ended.IsZero() {
			return journal.ErrConflict
		}
		r = &kept{row: *c.Begin}
		r.row.Last, r.row.Head = r.row.Base, journal.Head{}
	}
	if len(c.Records) > 0 && c.Records[0].Seq != r.row.Last.Seq+1 || c.Head != nil && c.Head.Ended.IsZero() && !r.row.Ended.IsZero() {
		return journal.ErrConflict
	}
	if c.Begin != nil {
		s.runs[c.Run] = r
		if c.Begin.Key.Kind != "" {
			s.byKey[c.Begin.Key] = append(s.byKey[c.Begin.Key], r)
		}
	}
	for _, x := range c.Records {
		x.Bytes = slices.Clone(x.Bytes)
		r.records = append(r.records, x)
		r.row.Last = journal.Point{Seq: x.Seq, Hash: x.Hash}
		s.order = append(s.order, c.Run)
	}
	s.records += len(c.Records)
	if c.Head != nil {
		r.row.Head = *c.Head
	}
	if c.Cut != 0 {
		s.cut(r, c.Cut)
	}
	if c.Remove {
		s.records -= len(r.records)
		delete(s.runs, c.Run)
		if left := slices.DeleteFunc(s.byKey[r.row.Key], func(x *kept) bool { return x == r }); len(left) > 0 {
			s.byKey[r.row.Key] = left
		} else {
			delete(s.byKey, r.row.Key)
		}
		for name, o := range s.objects {
			if o.Run == c.Run {
				delete(s.objects, name)
			}
		}
	}
	stale := s.put(c.Objects)
	s.forget()
	return stale
}

// put puts and removes objects. The error is a [journal.Stale].
func (s *Store) put(objects []journal.Object) error {
	var stale []journal.Object
	for _, o := range objects {
		name := objectName{o.Kind, o.Name}
		switch is := s.objects[name].Bytes; {
		case o.Swap && !journal.SameBytes(is, o.Was):
			stale = append(stale, o)
		case o.Bytes == nil:
			delete(s.objects, name)
		default:
			s.objects[name] = journal.Object{Kind: o.Kind, Name: o.Name, Run: o.Run, Bytes: bytes.Clone(o.Bytes)}
		}
	}
	if stale == nil {
		return nil
	}
	return &journal.Stale{Objects: stale}
}

// cut drops the records up to a number.
func (s *Store) cut(r *kept, to uint64) {
	n := 0
	for n < len(r.records) && r.records[n].Seq <= to {
		n++
	}
	if n > 0 {
		r.row.Base = journal.Point{Seq: r.records[n-1].Seq, Hash: r.records[n-1].Hash}
		clear(r.records[:n])
		r.records = r.records[n:] // the rest of the array goes when it grows
		s.records -= n
	}
}

// forget drops the oldest records where there are too many.
func (s *Store) forget() {
	for s.max > 0 && s.records > s.max {
		r := s.runs[s.order[0]]
		s.order = s.order[1:]
		if r != nil && len(r.records) > 0 {
			s.cut(r, r.records[0].Seq)
		}
	}
	if len(s.order) > 2*s.records+1000 { // those of runs that were removed
		left := make(map[string]int, len(s.runs))
		for id, r := range s.runs {
			left[id] = len(r.records)
		}
		kept := make([]string, 0, s.records)
		for _, id := range slices.Backward(s.order) {
			if left[id] > 0 {
				left[id]--
				kept = append(kept, id)
			}
		}
		slices.Reverse(kept)
		s.order = kept
	}
}

// last is the run of a key that began last, nil where there is none.
func (s *Store) last(k journal.Key) *kept {
	if all := s.byKey[k]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// Find implements [journal.Store].
func (s *Store) Find(_ context.Context, k journal.Key) (journal.Row, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rowOf(s.last(k))
}

// Take implements [journal.Store].
func (s *Store) Take(ctx context.Context, run string) (journal.Row, error) { return s.Row(ctx, run) }

// Row implements [journal.Store].
func (s *Store) Row(_ context.Context, run string) (journal.Row, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rowOf(s.runs[run])
}

func (s *Store) rowOf(r *kept) (journal.Row, error) {
	switch {
	case s.closed:
		return journal.Row{}, journal.ErrClosed
	case r == nil:
		return journal.Row{}, journal.ErrNone
	}
	return r.row, nil
}

// List implements [journal.Store].
func (s *Store) List(_ context.Context, q journal.Query) (page []journal.Row, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, journal.ErrClosed
	}
	for _, r := range s.runs {
		if q.Has(&r.row) {
			page = append(page, r.row)
		}
	}
	slices.SortFunc(page, func(a, b journal.Row) int { return strings.Compare(a.ID, b.ID) })
	return page[:min(len(page), q.Page())], nil
}

// Records implements [journal.Store].
func (s *Store) Records(_ context.Context, run string, after uint64, limit int) ([]journal.Record, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.runs[run]
	if _, err := s.rowOf(r); err != nil {
		return nil, err
	}
	from := slices.IndexFunc(r.records, func(x journal.Record) bool { return x.Seq > after })
	if from < 0 {
		return nil, nil
	}
	return slices.Clone(r.records[from:min(from+limit, len(r.records))]), nil
}

// Object implements [journal.Store].
func (s *Store) Object(_ context.Context, kind, name string) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, journal.ErrClosed
	}
	o, ok := s.objects[objectName{kind, name}]
	if !ok {
		return nil, journal.ErrNone
	}
	return slices.Clone(o.Bytes), nil
}

// Objects implements [journal.Store].
func (s *Store) Objects(_ context.Context, run string) (all []journal.Object, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, journal.ErrClosed
	}
	for _, o := range s.objects {
		if o.Run == run {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b journal.Object) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return all, nil
}

// ObjectsOf implements [journal.Store].
func (s *Store) ObjectsOf(_ context.Context, kind, after string, limit int) (page []journal.Object, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, journal.ErrClosed
	}
	for _, o := range s.objects {
		if o.Kind == kind && o.Name > after {
			page = append(page, o)
		}
	}
	slices.SortFunc(page, func(a, b journal.Object) int { return strings.Compare(a.Name, b.Name) })
	return page[:min(len(page), limit)], nil
}

// Size implements [journal.Store]: the bytes of records and objects.
func (s *Store) Size(context.Context) (size int64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.runs {
		for _, x := range r.records {
			size += int64(len(x.Bytes))
		}
	}
	for _, o := range s.objects {
		size += int64(len(o.Bytes))
	}
	return size, nil
}

// Ended implements [journal.Store].
func (s *Store) Ended(_ context.Context, limit int) (ids []string, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, journal.ErrClosed
	}
	var ended []*kept
	for _, r := range s.runs {
		if !r.row.Ended.IsZero() {
			ended = append(ended, r)
		}
	}
	slices.SortFunc(ended, func(a, b *kept) int {
		return cmp.Or(a.row.Ended.Compare(b.row.Ended), strings.Compare(a.row.ID, b.row.ID))
	})
	for _, r := range ended[:min(len(ended), limit)] {
		ids = append(ids, r.row.ID)
	}
	return ids, nil
}

// Stock implements [journal.Store].
func (s *Store) Stock(ctx context.Context) (stock journal.Stock, err error) {
	if stock.Used, err = s.Size(ctx); err != nil {
		return stock, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.runs {
		if stock.Runs++; r.row.Ended.IsZero() {
			stock.Live++
		}
	}
	return stock, nil
}

// Close implements [journal.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
