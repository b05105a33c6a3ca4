package streamhttp

import "sync"

// solos are the POSTs of the modern era under way.
type solos struct {
	_        apart
	mu       sync.Mutex // guards what follows
	all      []*solo    // nil where there is none
	free     []int      // where
	requests quota
	listens  quota // those of them that are subscriptions/listen streams
	closed   bool
	_        apart
}

func (e *solos) init(cfg *ServerConfig) {
	e.requests = newQuota(cfg.Requests, half(cfg.Requests), cfg.ofPrincipal(cfg.Requests))
	e.listens = newQuota(cfg.Listens, half(cfg.Listens), cfg.ofPrincipal(cfg.Listens))
}

func (e *solos) quotaLocked(x *solo) *quota {
	if x.listens {
		return &e.listens
	}
	return &e.requests
}

// enter reports whether there is room for another one.
func (e *solos) enter(x *solo) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || !e.quotaLocked(x).take(x.party) {
		return false
	}
	if n := len(e.free); n > 0 {
		x.at = e.free[n-1]
		e.free = e.free[:n-1]
		e.all[x.at] = x
	} else {
		x.at = len(e.all)
		e.all = append(e.all, x)
	}
	return true
}

func (e *solos) leave(x *solo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.quotaLocked(x).give(x.party)
	e.all[x.at] = nil
	e.free = append(e.free, x.at)
}

// append appends all of them to list.
func (e *solos) append(list []*solo) []*solo {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.all {
		if x != nil {
			list = append(list, x)
		}
	}
	return list
}

// takeRefused returns how many were refused since the last call.
func (e *solos) takeRefused() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests.takeRefused() + e.listens.takeRefused()
}

// close takes no more, and cancels those there are.
func (e *solos) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	for _, x := range e.append(nil) {
		x.cancel()
	}
}
