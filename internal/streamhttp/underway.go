package streamhttp

import (
	"sync"
	"sync/atomic"
)

// underway counts the requests under way until it is closed: from then on no more
// begin. It is what a mutex and a WaitGroup do together, at half the price. It is
// safe for concurrent use; its zero value is not ready.
type underway struct {
	_     apart
	n     atomic.Int64 // with shut added once it is closed
	_     apart
	empty chan struct{} // closes when it is closed and nothing is under way
	once  sync.Once     // for that
}

const shut = 1 << 62

// apart keeps what every request writes from what every request only reads: what
// lies on one cache line with it would have to be fetched again each time.
type apart [64]byte

func (u *underway) init() { u.empty = make(chan struct{}) }

// enter reports whether one more may begin; then leave is to be called.
func (u *underway) enter() bool {
	if u.n.Add(1) < shut {
		return true
	}
	u.leave()
	return false
}

func (u *underway) leave() {
	if u.n.Add(-1) == shut {
		u.once.Do(func() { close(u.empty) })
	}
}

// close lets no more begin, and reports whether it is the first to do so.
func (u *underway) close() bool {
	for {
		n := u.n.Load()
		if n >= shut {
			return false
		}
		if u.n.CompareAndSwap(n, n+shut+1) {
			u.leave() // as if one had been under way until now
			return true
		}
	}
}

func (u *underway) closed() bool { return u.n.Load() >= shut }
