package durable

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// limitsObject is the kind of what principals have taken of limits over all their runs, by the hashes of who they are.
// It is written ahead: what a call takes is durable before the call is sent. What it gives back may be written later: a
// crash in between has it counted.
const limitsObject = "principal_limits"

// limitsPage is how many principals are written at once.
const limitsPage = 500

// Limits is the table of what principals take of limits over all their runs.
func (s *Store) Limits() *limit.Principals { return s.limits }

// LoadLimits reads what is kept of that, all of it, before anybody takes more: no more principals are kept than a table
// counts for. Each page may take as long as the store's timeout.
func (s *Store) LoadLimits(ctx context.Context, now time.Time) error {
	for o, err := range s.objects(ctx, limitsObject, "") {
		if err != nil {
			return err
		}
		if err := s.limits.Restore(o.Name, o.Bytes, now); err != nil {
			return fmt.Errorf("what principal %s has taken of limits (object %s of the store) cannot be read: %w", o.Name, limitsObject, err)
		}
	}
	return nil
}

// objects reads all of a kind behind a name, page by page.
func (s *Store) objects(ctx context.Context, kind, after string) iter.Seq2[journal.Object, error] {
	const most = 500
	return func(yield func(journal.Object, error) bool) {
		for {
			page, err := s.page(ctx, kind, after, most)
			if err != nil {
				yield(journal.Object{}, err)
				return
			}
			for _, o := range page {
				if after = o.Name; !yield(o, nil) {
					return
				}
			}
			if len(page) < most {
				return
			}
		}
	}
}

// page reads a page of a kind.
func (s *Store) page(ctx context.Context, kind, after string, most int) ([]journal.Object, error) {
	ctx, stop := context.WithTimeout(ctx, s.cfg.Timeout)
	defer stop()
	return s.cfg.Journal.ObjectsOf(ctx, kind, after, most)
}

// SaveLimits hands over what principals have taken where something else is kept: they were given something back, or
// their windows are over, and then nothing is kept of them.
func (s *Store) SaveLimits(now time.Time) error {
	if s.Shared() {
		for _, who := range s.limits.Stale() {
			if err := s.RereadLimits(who, false); err != nil {
				return err
			}
		}
	}
	for some := range slices.Chunk(s.limits.Unsaved(now), limitsPage) {
		if _, err := s.submit(journal.Change{}, journal.Later, some, nil, now); err != nil {
			return err
		}
	}
	return nil
}

// submit hands a change over, with what some principals have taken of limits by now. The table's lock is held
// meanwhile: what is handed over later tells of all that this tells of. In a shared store it is swapped.
func (s *Store) submit(c journal.Change, when journal.When, whose []string, entries []run.Entry, now time.Time) (t *journal.Ticket, err error) {
	if len(whose) == 0 {
		return s.write.Submit(c, when)
	}
	if s.Shared() {
		return s.swap(c, when, whose, entries, now)
	}
	err = s.limits.Save(now, func(of func(string) []byte) (err error) {
		for _, who := range whose {
			c.Objects = append(c.Objects, journal.Object{Kind: limitsObject, Name: who, Bytes: of(who)})
		}
		t, err = s.write.Submit(c, when)
		return err
	})
	return t, err
}

// swap is submit where other processes write the store as well. A change without records whose objects are as they were is
// not made; the ticket is nil then.
func (s *Store) swap(c journal.Change, when journal.When, whose []string, entries []run.Entry, now time.Time) (t *journal.Ticket, err error) {
	swaps := map[string]*limit.Swap{}
	c.Swapped = func(o *journal.Object, ok bool) { s.limits.Swapped(swaps[o.Name], ok) }
	err = s.limits.Swap(now, func(of func(string, ...*limit.Taken) *limit.Swap) (err error) {
		for _, who := range whose {
			var taken []*limit.Taken
			for i := range entries {
				if e := &entries[i]; e.Type == run.Begun && e.Limits == who && e.Call != nil {
					_, one := e.Call.Personal()
					taken = append(taken, one)
				}
			}
			x := of(who, taken...)
			if swaps[who] = x; !x.Same() || x.Takes() {
				c.Objects = append(c.Objects, journal.Object{Kind: limitsObject, Name: who, Bytes: x.Is, Swap: true, Was: x.Was})
			}
		}
		if c.Run == "" && len(c.Objects) == 0 {
			return nil
		}
		t, err = s.write.Submit(c, when)
		return err
	})
	return t, err
}

// TookLimits reports whether what a call that has begun takes of its principal's limits is in the store: in one that others write
// as well somebody may have been sooner. Then what is there is read, the call is not to be sent, and is to be decided anew.
// It is to be asked when the begin is durable.
func (s *Store) TookLimits(who string, taken *limit.Taken) (bool, error) {
	if !s.Shared() || taken == nil || s.limits.Kept(taken) {
		return true, nil
	}
	return false, s.RereadLimits(who, false)
}

// rereads is how seldom what a principal has taken is read only since a call of it was refused.
const rereads = time.Second

// MayReread reports whether it is time to read what a principal has taken since a call of it was refused.
func (s *Store) MayReread(who string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.reread[who]) < rereads {
		return false
	}
	if s.reread == nil || len(s.reread) >= maxReread {
		s.reread = make(map[string]time.Time)
	}
	s.reread[who] = now
	return true
}

// maxReread is of how many principals it is remembered when that was read; beyond it, it is read sooner.
const maxReread = 10_000

// RereadLimits reads what a principal has taken, where others have written that; or, if refused, where they may have.
func (s *Store) RereadLimits(who string, refused bool) error {
	at := &s.rereading[who[0]%byte(len(s.rereading))]
	switch {
	case !refused:
		at.Lock()
	case !at.TryLock(): // nobody waits for it
		return nil
	}
	defer at.Unlock()
	settled, stale := s.limits.Reading(who)
	if !refused && !stale {
		return nil // it was read meanwhile
	}
	ctx, stop := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer stop()
	text, err := s.cfg.Journal.Object(ctx, limitsObject, who)
	if errors.Is(err, journal.ErrNone) {
		text, err = nil, nil
	}
	if err != nil {
		return err
	}
	return s.limits.Reread(who, text, settled, time.Now())
}

// limitsOf are the principals of whose limits entries tell, each once.
func limitsOf(entries []run.Entry) (whose []string) {
	for i := range entries {
		if who := entries[i].Limits; who != "" && !slices.Contains(whose, who) {
			whose = append(whose, who)
		}
	}
	return whose
}
