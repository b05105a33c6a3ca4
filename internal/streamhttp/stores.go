package streamhttp

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
)

// stores are what all sessions of a server keep for clients that are away.
type stores struct {
	limit int
	held  atomic.Int64  // bytes
	full  chan struct{} // there are more than the limit

	trimmed int // sessions that had to forget since the log was last told; for the sweeper alone
}

func (s *stores) init(limit int) { s.limit, s.full = limit, make(chan struct{}, 1) }

// add counts n more bytes, or fewer.
func (s *stores) add(n int) {
	if s.held.Add(int64(n)) <= int64(s.limit) || n <= 0 {
		return
	}
	select {
	case s.full <- struct{}{}:
	default:
	}
}

// trimStores has sessions forget what is oldest, until all together keep no more than
// seven eighths of the limit: there is room for a while. Those that keep more than they
// could if all kept the same forget first, and of them whoever was heard of least lately.
func (s *Server) trimStores() {
	sum := s.stores.limit / 8 * 7
	type store struct {
		*session
		bytes int
		last  int64
	}
	var all []store
	var sizes []int
	for _, ses := range s.table.all(nil) {
		bytes, last := ses.keeps()
		all, sizes = append(all, store{ses, bytes, last}), append(sizes, bytes)
	}
	most := level(sizes, sum)
	slices.SortFunc(all, func(a, b store) int { return cmp.Compare(a.last, b.last) })
	for _, one := range all {
		if s.stores.held.Load() <= int64(sum) {
			return
		}
		if one.bytes > most && one.trim(most) {
			s.stores.trimmed++
		}
	}
}

// level returns the size to which the largest are to be cut so that all sizes together
// are no more than sum.
func level(sizes []int, sum int) int {
	slices.Sort(sizes)
	for i, size := range sizes {
		share := sum / (len(sizes) - i)
		if size > share {
			return share
		}
		sum -= size
	}
	return math.MaxInt
}

// keeps is how many bytes the session keeps, and when it was heard of last, in ticks.
func (s *session) keeps() (bytes int, last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored, s.last
}

// trim forgets what is oldest until the session keeps no more than most bytes, what a
// client has not got yet last. It reports whether it forgot anything.
func (s *session) trim(most int) (forgot bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended && s.stored > most && (s.forgetOldest() || s.forgetUnsent()) {
		forgot = true
	}
	return forgot
}

// forgetUnsent forgets the oldest event that waits for a client that is away, and
// reports whether there was one.
func (s *session) forgetUnsent() bool {
	oldest := s.own.oldestAway(nil)
	for _, b := range s.streams {
		oldest = b.oldestAway(oldest)
	}
	if oldest == nil {
		return false
	}
	oldest.forget(1)
	return true
}

// oldestAway returns the one of b and other whose first event is older, of those that
// have an event and no client.
func (b *outbox) oldestAway(other *outbox) *outbox {
	if len(b.records) == 0 || b.attached() || other != nil && other.records[0].seq < b.records[0].seq {
		return other
	}
	return b
}
