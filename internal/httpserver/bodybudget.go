package httpserver

import (
	"container/list"
	"sync"
	"time"
)

// BodyBudget bounds how many bytes the bodies of requests take, in all servers that
// share it. They count as they arrive, by the capacity of the buffers that hold them,
// until the request is done with. One session, one principal, one remote address, and
// all requests together that have neither session nor principal, may have half each.
//
// A request with a session or a principal waits for room, at most 5 s, in the
// order of asking; one without is refused. A body of up to 64 KiB never waits: of those
// that have neither, such bodies may take a quarter of the budget besides, and all
// others are bounded by the number of connections. What is the only body of an account
// has room whatever its size, so that the largest message always passes by itself.
type BodyBudget struct {
	mu        sync.Mutex // guards what follows, and what the accounts and claims count
	all       account
	strangers account          // bodies of neither session nor principal
	small     account          // those of them that are no larger than quickBody
	shares    map[any]*account // by session, principal and network
	queue     list.List        // of the *BodyClaims that wait, the first to come first
	refused   int              // since it was last asked
}

// account is what one holder has of a budget.
type account struct {
	limit   int
	used    int // bytes
	waiting int // those of them whose claims wait for more
	claims  int
}

// NewBodyBudget returns a budget of so many bytes; 0: 64 MiB.
func NewBodyBudget(bytes int) *BodyBudget {
	orElse(&bytes, 64<<20)
	return &BodyBudget{
		all: account{limit: bytes}, strangers: account{limit: bytes / 2}, small: account{limit: bytes / 4},
		shares: make(map[any]*account),
	}
}

// BodyClaim is what one body takes. Its methods, but those that end in Locked, are
// called by the one goroutine that reads the body.
type BodyClaim struct {
	budget     *BodyBudget
	known      bool            // it has a session or a principal
	Holders    []any           // of the shares that a large body counts for, besides; to be set before Read
	gone, stop <-chan struct{} // end the waiting
	patience   time.Duration   // how much longer it may wait

	accounts []*account // that it counts for; nil: for none yet
	large    bool       // they are those of a large body
	used     int        // bytes

	// While it waits:
	want   int
	place  *list.Element // nil: it does not wait
	answer chan bool     // whether it has got what it wants
}

// free is up to what capacity a buffer counts for nothing.
func (c *BodyClaim) free() int {
	if c.known {
		return quickBody
	}
	return tinyBody
}

// enlarge returns a buffer of a capacity with what is in raw. Both count while one is
// copied to the other.
func (c *BodyClaim) enlarge(raw []byte, capacity int) ([]byte, error) {
	if capacity > quickBody && !c.large {
		c.Release()
		c.large = true
	}
	copied := c.used
	if capacity > c.free() && !c.take(capacity) {
		return nil, ErrNoRoom
	}
	grown := make([]byte, len(raw), capacity)
	copy(grown, raw)
	if copied > 0 {
		c.giveBack(copied)
	}
	return grown, nil
}

// Release gives back all that the body takes; of a nil claim, nothing.
func (c *BodyClaim) Release() {
	if c == nil || c.accounts == nil {
		return
	}
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	c.addLocked(-c.used)
	for _, a := range c.accounts {
		a.claims--
	}
	for _, holder := range c.Holders {
		if a := b.shares[holder]; a != nil && a.claims == 0 {
			delete(b.shares, holder)
		}
	}
	c.accounts = nil
	b.settleLocked()
}

func (c *BodyClaim) giveBack(n int) {
	c.budget.mu.Lock()
	defer c.budget.mu.Unlock()
	c.addLocked(-n)
	c.budget.settleLocked()
}

// take makes room for n bytes more, or waits until there is some, and reports whether
// there is.
func (c *BodyClaim) take(n int) bool {
	if c.ask(n) {
		return <-c.answer
	}
	began := time.Now()
	timer := time.NewTimer(c.patience)
	defer timer.Stop()
	select {
	case granted := <-c.answer:
		c.patience -= time.Since(began)
		return granted
	case <-timer.C:
	case <-c.gone:
	case <-c.stop:
	}
	return c.stopWaiting()
}

// ask asks for n bytes more, and reports whether that is answered already.
func (c *BodyClaim) ask(n int) bool {
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	c.openLocked()
	c.want, c.answer = n, make(chan bool, 1)
	c.place = b.queue.PushBack(c)
	c.waitLocked(1)
	b.settleLocked()
	if c.place != nil && !c.known {
		c.leaveLocked(false)
	}
	return c.place == nil
}

// stopWaiting takes the claim out of the queue, and reports whether it has got what it
// wants meanwhile.
func (c *BodyClaim) stopWaiting() bool {
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.place != nil {
		c.leaveLocked(false)
		b.settleLocked()
	}
	return <-c.answer
}

// openLocked enters the claim into the accounts that it counts for.
func (c *BodyClaim) openLocked() {
	b := c.budget
	switch {
	case c.accounts != nil:
		return
	case !c.large:
		c.accounts = []*account{&b.small}
	case !c.known:
		c.accounts = []*account{&b.strangers, &b.all}
	default:
		c.accounts = []*account{&b.all}
	}
	if c.large {
		for _, holder := range c.Holders {
			a := b.shares[holder]
			if a == nil {
				a = &account{limit: b.all.limit / 2}
				b.shares[holder] = a
			}
			c.accounts = append(c.accounts, a)
		}
	}
	for _, a := range c.accounts {
		a.claims++
	}
}

func (c *BodyClaim) addLocked(n int) {
	c.used += n
	for _, a := range c.accounts {
		a.used += n
	}
}

// waitLocked counts what the claim uses as used by one that waits, or, by -1, no more.
func (c *BodyClaim) waitLocked(sign int) {
	for _, a := range c.accounts {
		a.waiting += sign * c.used
	}
}

// leaveLocked takes the claim out of the queue, with what it wants or without.
func (c *BodyClaim) leaveLocked(granted bool) {
	c.waitLocked(-1)
	c.budget.queue.Remove(c.place)
	c.place = nil
	if granted {
		c.addLocked(c.want)
	} else {
		c.budget.refused++
	}
	c.answer <- granted
}

// shortLocked returns an account that has no room for what the claim wants, of all of
// them the one of all bodies last; nil: they all have.
func (c *BodyClaim) shortLocked() (short *account) {
	for _, a := range c.accounts {
		if a.used+c.want > a.limit && a.used > c.used && (short == nil || short == &c.budget.all) {
			short = a
		}
	}
	return short
}

// settleLocked gives what there is to those that wait, in the order of their coming.
// Whoever waits for a share of his own holds up nobody else.
func (b *BodyBudget) settleLocked() {
	for e := b.queue.Front(); e != nil; {
		c := e.Value.(*BodyClaim)
		e = e.Next()
		switch c.shortLocked() {
		case nil:
			c.leaveLocked(true)
		case &b.all:
			e = nil
		}
	}
	b.unlockLocked()
}

// unlockLocked refuses the claim that came last of those that keep each other waiting:
// where all that an account counts is of claims that wait for more of it, nobody
// would ever give any back.
func (b *BodyBudget) unlockLocked() {
	for e := b.queue.Back(); e != nil; e = e.Prev() {
		c := e.Value.(*BodyClaim)
		if a := c.shortLocked(); a != nil && a.used == a.waiting && c.used > 0 {
			c.leaveLocked(false)
			return
		}
	}
}

// TakeRefused returns how many bodies were refused since the last call.
func (b *BodyBudget) TakeRefused() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.refused
	b.refused = 0
	return n
}
