package limit

import (
	"sync"
	"time"
)

// Principals counts what principals take of limits across their runs. It is safe for concurrent use. A principal
// whose windows are empty is forgotten.
//
// What is counted can be kept elsewhere: see [Principals.Save].
type Principals struct {
	most int

	mu    sync.Mutex // guards what is below
	all   map[string]*Counts
	saved map[string]bool // of whom anything is kept: whether that is what is counted
	rows  map[string]*row // nil: nobody else writes what is kept
	last  time.Time       // that a shared table was told
	moved func(key string) (string, bool)

	settled int // swaps of which it is known what became
}

// NewPrincipals returns a table that counts for at most so many principals at once; 0 is 100,000. A call of one more
// is refused, since to forget another's would free that one's limits.
func NewPrincipals(most int) *Principals {
	if most == 0 {
		most = 100_000
	}
	return &Principals{most: most, all: map[string]*Counts{}, saved: map[string]bool{}}
}

// Take is [Counts.Take] for a principal.
func (p *Principals) Take(principal string, now time.Time, limits ...Limit) (*Taken, *Full) {
	if len(limits) == 0 {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now = p.tickLocked(now, true)
	p.forgetSomeLocked(now)
	c := p.all[principal]
	if c == nil {
		if len(p.all) >= p.most {
			p.forgetLocked(now)
		}
		if len(p.all) >= p.most {
			return nil, &Full{Limit: limits[0], Crowded: true}
		}
		c = &Counts{}
	}
	taken, full := c.Take(now, limits...)
	if taken != nil {
		p.all[principal] = c
		taken.of, taken.wall = c, now.UnixNano()
	}
	return taken, full
}

// GiveBack is [Counts.GiveBack] for a principal.
func (p *Principals) GiveBack(principal string, t *Taken) {
	if t == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.all[principal]
	switch {
	case p.rows != nil:
		p.giveBackLocked(principal, t)
	case c != nil:
		c.GiveBack(t)
	}
	if c == nil {
		return // the windows are over
	}
	p.changedLocked(principal)
	if len(c.counters) == 0 {
		delete(p.all, principal)
	}
}

// Adopt has all counts go on under the keys that their places have in another policy. Other than those of a run they
// stay where a place is gone, until their windows are over: runs of a principal may go by the policy before.
func (p *Principals) Adopt(moved func(key string) (string, bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved = moved
	for principal, c := range p.all {
		if c.move(moved) {
			p.changedLocked(principal)
		}
	}
}

// Save calls f with what tells of each principal what is to be kept of it, nil for nothing: what it has taken by now.
// If f succeeds, that is kept then: it hands on in the order in which it is called, so that nothing older comes to stand
// in place of it. Nobody takes anything meanwhile.
func (p *Principals) Save(now time.Time, f func(of func(principal string) []byte) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	handed := map[string]bool{} // and whether there is anything
	err := f(func(principal string) (text []byte) {
		if c := p.all[principal]; c != nil {
			text = c.Keep(now)
		}
		handed[principal] = text != nil
		return text
	})
	if err != nil {
		return err
	}
	for principal, any := range handed {
		if any {
			p.saved[principal] = true
		} else {
			delete(p.saved, principal)
		}
	}
	return nil
}

// Restore has a principal have taken what was kept of it. It is for one who has taken nothing yet.
func (p *Principals) Restore(principal string, text []byte, now time.Time) error {
	c, err := Restore(text, now)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.saved[principal] = len(c.counters) > 0; p.saved[principal] {
		p.all[principal] = c
	}
	if p.rows != nil {
		p.rowLocked(principal).text = text
	}
	return nil
}

// Unsaved are the principals of whom something else is kept than what is counted by now.
func (p *Principals) Unsaved(now time.Time) (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetLocked(p.tickLocked(now, false))
	for principal, same := range p.saved {
		if !same {
			all = append(all, principal)
		}
	}
	return all
}

// changedLocked notes that what is kept of a principal is no longer what is counted.
func (p *Principals) changedLocked(principal string) {
	if _, kept := p.saved[principal]; kept {
		p.saved[principal] = false
	}
}

// Len returns for how many principals anything is counted.
func (p *Principals) Len(now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetLocked(p.tickLocked(now, false))
	return len(p.all)
}

// AppendJSON is [Counts.AppendJSON] for a principal.
func (p *Principals) AppendJSON(to []byte, principal string, now time.Time) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.all[principal]
	if c == nil {
		return append(to, "[]"...)
	}
	return c.AppendJSON(to, p.tickLocked(now, false))
}

// forgetLocked forgets the principals whose windows are empty.
func (p *Principals) forgetLocked(now time.Time) {
	for principal, c := range p.all {
		p.forgetOneLocked(principal, c, now)
	}
}

// forgetSomeLocked looks at a few principals, whichever they are: more than a call adds, so that those whose windows
// are empty do not pile up.
func (p *Principals) forgetSomeLocked(now time.Time) {
	left := 3
	for principal, c := range p.all {
		p.forgetOneLocked(principal, c, now)
		if left--; left == 0 {
			return
		}
	}
}

func (p *Principals) forgetOneLocked(principal string, c *Counts, now time.Time) {
	if !c.Forget(now) {
		delete(p.all, principal)
		p.changedLocked(principal)
	}
}
