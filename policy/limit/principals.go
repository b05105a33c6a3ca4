package limit

import (
	"sync"
	"time"
)

// Principals counts what principals take of limits across their runs. It is safe for concurrent use. A principal
// whose windows are empty is forgotten.
type Principals struct {
	most int

	mu  sync.Mutex // guards what is below
	all map[string]*Counts
}

// NewPrincipals returns a table that counts for at most so many principals at once; 0 is 100,000. A call of one more
// is refused, since to forget another's would free that one's limits.
func NewPrincipals(most int) *Principals {
	if most == 0 {
		most = 100_000
	}
	return &Principals{most: most, all: map[string]*Counts{}}
}

// Take is [Counts.Take] for a principal.
func (p *Principals) Take(principal string, now time.Time, limits ...Limit) (*Taken, *Full) {
	if len(limits) == 0 {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
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
	if c == nil {
		return // the windows are over
	}
	c.GiveBack(t)
	if len(c.counters) == 0 {
		delete(p.all, principal)
	}
}

// Adopt is [Counts.Adopt] for all principals.
func (p *Principals) Adopt(moved func(key string) (string, bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for principal, c := range p.all {
		if c.Adopt(moved); len(c.counters) == 0 {
			delete(p.all, principal)
		}
	}
}

// Len returns for how many principals anything is counted.
func (p *Principals) Len(now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetLocked(now)
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
	return c.AppendJSON(to, now)
}

// forgetLocked forgets the principals whose windows are empty.
func (p *Principals) forgetLocked(now time.Time) {
	for principal, c := range p.all {
		if !c.Forget(now) {
			delete(p.all, principal)
		}
	}
}

// forgetSomeLocked looks at a few principals, whichever they are: more than a call adds, so that those whose windows
// are empty do not pile up.
func (p *Principals) forgetSomeLocked(now time.Time) {
	left := 3
	for principal, c := range p.all {
		if !c.Forget(now) {
			delete(p.all, principal)
		}
		if left--; left == 0 {
			return
		}
	}
}
