package limit

import (
	"slices"
	"time"
)

// row is what a shared store has of a principal, as far as this table knows.
type row struct {
	text    []byte // with what was handed over since; nil: nothing
	until   int64  // up to when that has what was taken, in nanoseconds since 1970
	reads   int    // how often it was read anew
	open    int    // swaps that were handed over, of which it is not known what became
	settled int    // which swap of the table that was whose outcome became known last; 0: none was
	stale   bool   // the store has, or may have, something else
	back    []back // given back, where the store may not know of it
	gone    int    // how many were before those
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
// counts what some calls have taken, as far as it is counted still. What became of each that is not the Same, or Takes, has to be
// told by [Principals.Swapped], in the order in which they were handed over.
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
		if !s.Same() || s.Takes() {
			s.row.open, s.row.until = s.row.open+1, now.UnixNano()
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
	if ok {
		for _, t := range s.taken {
			t.kept = true
		}
		if n := s.back - r.gone; n > 0 {
			r.back, r.gone = slices.Delete(r.back, 0, n), s.back
		}
	}
	p.settled++
	r.open, r.settled = r.open-1, p.settled
	r.stale = r.stale || ok != (r.reads == s.reads)
	p.tidyLocked(s.principal, r)
}

// tidyLocked forgets a row of which there is nothing to know.
func (p *Principals) tidyLocked(principal string, r *row) {
	if r.text == nil && !r.stale && r.open == 0 && len(r.back) == 0 && p.all[principal] == nil && p.rows[principal] == r {
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

// Reading is to be asked before what the store has of a principal is read, and its first result given to [Principals.Reread]. It
// reports as well whether the principal is one of [Principals.Stale].
func (p *Principals) Reading(principal string) (settled int, stale bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.rows[principal]; r != nil {
		settled, stale = r.settled, r.stale
	}
	return settled, stale
}

// Reread has a principal have taken what the store of a shared table has of it, nil for nothing, but what was given back
// since. What calls have taken that were not handed over counts no more: they are to take it anew. Where something has become of
// what was handed over while it was read, the principal is to be read once more.
func (p *Principals) Reread(principal string, text []byte, settled int, now time.Time) error {
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
	r.text, r.stale = text, r.settled != settled
	r.reads++
	r.gone += len(r.back)
	r.back = slices.DeleteFunc(r.back, func(b back) bool { return !c.giveBackAt(b) && r.open == 0 && !r.stale })
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

// giveBackLocked is GiveBack in a shared table: what was handed over the store may have, or is about to, also where what was read of
// it last has not.
func (p *Principals) giveBackLocked(principal string, t *Taken) {
	c, r := p.all[principal], p.rows[principal]
	switch {
	case r != nil && t.wall <= r.until:
		for _, x := range t.counters {
			b := back{x.Limit, t.wall}
			if c != nil && c.giveBackAt(b) || r.open > 0 || r.stale {
				r.back = append(r.back, b)
			}
		}
		t.counters = nil
	case t.of == c && c != nil:
		c.GiveBack(t)
	} // else it is counted nowhere
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
