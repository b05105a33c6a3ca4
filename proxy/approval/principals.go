package approval

import (
	"sync"
	"time"
)

// MaxPerPrincipal is how many questions may be open at once for a principal, in all of its runs.
const MaxPerPrincipal = 32

// Principals counts the open questions of principals across runs. It is safe for concurrent use. The zero value
// counts none.
type Principals struct {
	mu   sync.Mutex // guards open
	open map[string][]*Question
}

// enter counts a question, and reports whether there is room for it. One whose time has run out counts no more, though
// its run has not noticed yet.
func (p *Principals) enter(q *Question, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var still []*Question
	for _, other := range p.open[q.Principal] {
		if now.Before(other.Expires) {
			still = append(still, other)
		}
	}
	room := len(still) < MaxPerPrincipal
	if room {
		still = append(still, q)
	}
	if p.open == nil {
		p.open = map[string][]*Question{}
	}
	p.open[q.Principal] = still
	return room
}

// leave counts a question no more.
func (p *Principals) leave(q *Question) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var still []*Question
	for _, other := range p.open[q.Principal] {
		if other != q {
			still = append(still, other)
		}
	}
	if p.open[q.Principal] = still; still == nil {
		delete(p.open, q.Principal)
	}
}
