package proxy

import (
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// holds are the calls whose clients are to come back, by what they bring along:
// 130 random bits, which are good once.
type holds struct {
	mu   sync.Mutex // guards what follows
	all  map[string]*hold
	used map[share]room
}

// hold is one of them.
type hold struct {
	of    *held
	bytes int // of the answer that is kept; 0: there is none yet
}

// share is a part of the holds: all of them, those of a principal, or those that it
// has in one run.
type share struct {
	owner wire.Principal
	seat  *session
}

// room is how much there may be in a share, and how much there is.
type room struct{ holds, bytes int }

// The room in all, and for one principal. In one run it may have as many holds as
// requests under way.
var (
	roomInAll = room{holds: 10_000, bytes: 64 << 20}
	roomOfOne = room{holds: 1000, bytes: 16 << 20}
)

// keptInRun is how much may be kept for a principal in one run: as much as waits for
// a client on a stream.
const keptInRun = 4 << 20

// shares are those that a call's hold is part of, with the room in each. Who is not
// told apart from others has none of their own but in the run.
func (h *held) shares() map[share]room {
	all := map[share]room{
		{}:                            roomInAll,
		{owner: h.owner, seat: h.c.s}: {holds: h.c.s.p.cfg.MaxInFlight, bytes: keptInRun},
	}
	if h.owner.Known() {
		all[share{owner: h.owner}] = roomOfOne
	}
	return all
}

// add enters a call whose client is to come back by a state, and reports whether
// there was room.
func (hs *holds) add(state string, h *held) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if !hs.occupyLocked(h, room{holds: 1}) {
		return false
	}
	if hs.all == nil {
		hs.all = make(map[string]*hold)
	}
	hs.all[state] = &hold{of: h}
	return true
}

// keep notes how large the answer is that waits for a client, and reports whether
// there was room. One whose client is back already needs none.
func (hs *holds) keep(state string, h *held, bytes int) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	one := hs.all[state]
	switch {
	case one == nil || one.of != h:
		return true
	case !hs.occupyLocked(h, room{bytes: bytes}):
		return false
	}
	one.bytes = bytes
	return true
}

// occupyLocked takes room in all of a call's shares, if each has it.
func (hs *holds) occupyLocked(h *held, more room) bool {
	shares := h.shares()
	for s, most := range shares {
		if used := hs.used[s]; used.holds+more.holds > most.holds || used.bytes+more.bytes > most.bytes {
			return false
		}
	}
	if hs.used == nil {
		hs.used = make(map[share]room)
	}
	for s := range shares {
		hs.used[s] = room{hs.used[s].holds + more.holds, hs.used[s].bytes + more.bytes}
	}
	return true
}

// find is the call by a state, nil if there is none.
func (hs *holds) find(state string) *held {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if one := hs.all[state]; one != nil {
		return one.of
	}
	return nil
}

// take takes a state out, and reports whether it was there, for this call.
func (hs *holds) take(state string, h *held) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	one := hs.all[state]
	if one == nil || one.of != h {
		return false
	}
	delete(hs.all, state)
	for s := range h.shares() {
		if left := (room{hs.used[s].holds - 1, hs.used[s].bytes - one.bytes}); left.holds > 0 {
			hs.used[s] = left
		} else {
			delete(hs.used, s)
		}
	}
	return true
}
