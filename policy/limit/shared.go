package limit

import (
	"slices"
	"time"
)

// row is what a shared store has of a principal, as far as this table knows.
type row struct {
	text  []byte // with what was handed over since; nil: nothing
	reads int    // how often it was read anew, and when it was last
	at    time.Time
	stale bool   // somebody else has written it
	back  []back // given back, where the store may not know of it
	gone  int    // how many were before those
}

// back is what was given back of one limit.
type back struct {
	limit Limit
	at    int64 // when it was taken, in nanoseconds since 1970
}

// Share has others write what is kept as well: it is handed over by [Principals.Swap] then, not by [Principals.Save]. What a call
// takes has a time of its own from then on, by the clock of the wall, by which it is found in what others have written.
func (p *Principals) Share() { p.rows = map[string]*row{} }

// tickLocked is the time as a table counts by it. That of a shared one does not go back, and is another one whenever something is
// taken.
func (p *Principals) tickLocked(now time.Time, takes bool) time.Time {
	if p.rows == nil {
		return now
	}
	if now = now.Round(0); !now.After(p.last) {
		now = p.last
		if takes {
			now = now.Add(1)
		}
	}
	p.last = now
	return now
}

// rowLocked is the row of a principal, made where there is none.
func (p *Principals) rowLocked(principal string) *row {
	r := p.rows[principal]
	if r == nil {
		r = &row{}
		p.rows[principal] = r
	}
	return r
}

// A Swap is what a store is to keep of a principal in place of what it has.
type Swap struct {
	Is, Was []byte // nil: nothing

	principal   string
	row         *row
	reads, back int
	taken       []*Taken
}

// Same reports whether nothing is to be kept anew.
func (s *Swap) Same() bool { return SameText(s.Is, s.Was) }

// Takes reports whether it has to be known of calls that what they have taken is in the store.
func (s *Swap) Takes() bool { return len(s.taken) > 0 }

// SameText reports whether two texts are the same, of which nil is none.
func SameText(a, b []byte) bool { return (a == nil) == (b == nil) && string(a) == string(b) }

// Swap is [Principals.Save] for a shared table: of tells as well what the store should have of a principal until then, and
// counts what some calls have taken, as far as it is counted still. What became of each has to be told by
// [Principals.Swapped], in the order in which they were handed over.
func (p *Principals) Swap(now time.Time, f func(of func(principal string, taken ...*Taken) *Swap) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now = p.tickLocked(now, false)
	var all []*Swap
	err := f(func(principal string, taken ...*Taken) *Swap {
		c, r := p.all[principal], p.rowLocked(principal)
		s := &Swap{Was: r.text, principal: principal, row: r, reads: r.reads, back: r.gone + len(r.back)}
		if c != nil {
			s.Is = c.Keep(now)
		}
		for _, t := range taken {
			if t != nil && t.of == c {
				s.taken = append(s.taken, t)
			}
		}
		all = append(all, s)
		return s
	})
	if err != nil {
		return err
	}
	for _, s := range all {
		for _, t := range s.taken {
			t.handed = true
		}
		if s.row.text = s.Is; s.Is != nil {
			p.saved[s.principal] = true
		} else {
			delete(p.saved, s.principal)
			p.tidyLocked(s.principal, s.row)
		}
	}
	return nil
}

// Swapped tells what became of a [Swap] that was handed over.
func (p *Principals) Swapped(s *Swap, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := s.row
	switch {
	case ok:
		for _, t := range s.taken {
			t.kept = true
		}
		if n := s.back - r.gone; n > 0 {
			r.back, r.gone = slices.Delete(r.back, 0, n), s.back
		}
	case r.reads == s.reads:
		r.stale = true
		p.rows[s.principal] = r
	}
	p.tidyLocked(s.principal, r)
}

// tidyLocked forgets a row of which there is nothing to know.
func (p *Principals) tidyLocked(principal string, r *row) {
	if r.text == nil && !r.stale && len(r.back) == 0 && p.all[principal] == nil && p.rows[principal] == r {
		delete(p.rows, principal)
	}
}

// Kept reports whether what a call has taken is in the store.
func (p *Principals) Kept(t *Taken) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return t.kept
}

// Stale are the principals whose rows others have written: they are to be read anew.
func (p *Principals) Stale() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for principal, r := range p.rows {
		if r.stale {
			all = append(all, principal)
		}
	}
	return all
}

// IsStale reports whether a principal is one of [Principals.Stale].
func (p *Principals) IsStale(principal string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rows[principal]
	return r != nil && r.stale
}

// Reread has a principal have taken what the store of a shared table has of it, nil for nothing, but what was given back
// since. What calls have taken that were not handed over counts no more: they are to take it anew.
func (p *Principals) Reread(principal string, text []byte, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now = p.tickLocked(now, false)
	c := &Counts{}
	if text != nil {
		var err error
		if c, err = Restore(text, now); err != nil {
			return err
		}
		if p.moved != nil {
			c.move(p.moved)
		}
	}
	r := p.rowLocked(principal)
	r.text, r.stale = text, false
	r.reads, r.at = r.reads+1, now
	r.gone += len(r.back)
	r.back = slices.DeleteFunc(r.back, func(b back) bool { return !c.giveBackAt(b) })
	r.gone -= len(r.back)
	delete(p.all, principal)
	if len(c.counters) > 0 {
		p.all[principal] = c
	}
	if delete(p.saved, principal); text != nil {
		p.saved[principal] = SameText(c.Keep(now), text)
	}
	p.tidyLocked(principal, r)
	return nil
}

// giveBackLocked is GiveBack in a shared table, for what was handed over: the store may have it.
func (p *Principals) giveBackLocked(principal string, t *Taken) {
	c := p.all[principal]
	if t.of == c && c != nil && !t.handed {
		c.GiveBack(t)
		return
	}
	if !t.handed {
		return // it is counted nowhere
	}
	for _, x := range t.counters {
		b := back{x.Limit, t.wall}
		if c != nil && c.giveBackAt(b) {
			r := p.rowLocked(principal)
			r.back = append(r.back, b)
		}
	}
	t.counters = nil
}

// giveBackAt undoes what was taken of a limit at a time, and reports whether it is counted.
func (c *Counts) giveBackAt(b back) bool {
	x := c.find(b.limit)
	if x == nil || b.limit.Span.window() == 0 {
		return false
	}
	at := c.clock.passed + time.Unix(0, b.at).Sub(c.clock.last)
	i, ok := slices.BinarySearch(x.times, at)
	if ok {
		x.drop(i, i+1)
		c.tidy()
	}
	return ok
}
