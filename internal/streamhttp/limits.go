package streamhttp

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// party is whom something counts for: a remote network, where that is to be
// bounded, and a principal, where there is one.
type party struct {
	network netip.Prefix
	who     wire.Principal
}

func partyOf(from PeerInfo) party {
	at, _ := netip.ParseAddrPort(from.RemoteAddr)
	return party{httpserver.Share(at.Addr()), from.Principal}
}

// quota is how many of something there may be, in all, for one remote network and
// for one principal, so that a flood locks out itself. It is not safe for
// concurrent use.
type quota struct {
	limit, share, ofPrincipal int

	count    int
	networks map[netip.Prefix]int   // of count
	owners   map[wire.Principal]int // of count
	refused  int                    // since it was last asked
}

func newQuota(limit, share, ofPrincipal int) quota {
	return quota{limit: limit, share: share, ofPrincipal: ofPrincipal, networks: make(map[netip.Prefix]int), owners: make(map[wire.Principal]int)}
}

// take makes room for one more and reports whether there is any.
func (q *quota) take(by party) bool {
	if q.count >= q.limit || by.network.IsValid() && q.networks[by.network] >= q.share || by.who.Known() && q.owners[by.who] >= q.ofPrincipal {
		q.refused++
		return false
	}
	q.count++
	if by.network.IsValid() {
		q.networks[by.network]++
	}
	if by.who.Known() {
		q.owners[by.who]++
	}
	return true
}

// giveBack gives back the room of one.
func (q *quota) giveBack(by party) {
	q.count--
	if by.network.IsValid() {
		less(q.networks, by.network)
	}
	if by.who.Known() {
		less(q.owners, by.who)
	}
}

// less counts one less, and forgets those of whom there is none left.
func less[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// takeRefused returns how often there was no room since the last call.
func (q *quota) takeRefused() int {
	n := q.refused
	q.refused = 0
	return n
}

// stores are what all sessions of a server keep for clients that are away.
type stores struct {
	limit int
	bytes atomic.Int64
	full  chan struct{} // there are more than the limit

	trimmed int // sessions that had to forget since the log was last told; for the sweeper alone
}

func (s *stores) init(limit int) { s.limit, s.full = limit, make(chan struct{}, 1) }

// add counts n more bytes, or fewer.
func (s *stores) add(n int) {
	if s.bytes.Add(int64(n)) <= int64(s.limit) || n <= 0 {
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
		if s.stores.bytes.Load() <= int64(sum) {
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
	unsent := func(b *stream) bool { return len(b.records) > 0 && !b.attached() } // for a client that is away
	for !s.ended && s.stored > most && (s.forgetOldest() || s.forgetFirst(unsent)) {
		forgot = true
	}
	return forgot
}

// forgetFirst forgets the oldest of the first events of some streams, all of which have one, and
// reports whether there was any.
func (s *session) forgetFirst(some func(*stream) bool) bool {
	oldest := &s.own
	if !some(oldest) {
		oldest = nil
	}
	for _, b := range s.streams {
		if some(b) && (oldest == nil || b.records[0].seq < oldest.records[0].seq) {
			oldest = b
		}
	}
	if oldest != nil {
		oldest.forget(1)
	}
	return oldest != nil
}

// expire forgets what was sent, and the streams that ended, up to a time.
func (s *session) expire(until int64) {
	for len(s.over) > 0 && s.over[0].overAt < until && s.over[0].awaits == 0 {
		s.forgetStream(0)
	}
	s.own.expire(until)
	for _, b := range s.streams {
		b.expire(until)
	}
}

// room makes room for n more bytes in the store by forgetting what is oldest,
// and reports whether there is enough. What was not sent yet on a stream that
// is still open is never forgotten.
func (s *session) room(n int) bool {
	for s.stored+n > s.srv.cfg.Store && s.forgetOldest() {
	}
	return s.stored+n <= s.srv.cfg.Store
}

// keep counts n more bytes as kept for clients that are away, or fewer.
func (s *session) keep(n int) {
	s.stored += n
	if n != 0 && !s.ended {
		s.srv.stores.add(n)
	}
}

// forgetOldest forgets an event that was sent, or a stream that has ended, and reports
// whether there was one.
func (s *session) forgetOldest() bool {
	if i := slices.IndexFunc(s.over, func(b *stream) bool { return b.awaits == 0 }); i >= 0 {
		s.forgetStream(i)
		return true
	}
	return s.forgetFirst(func(b *stream) bool { return b.next > 0 })
}

// forgetStream forgets the stream at i of those that ended.
func (s *session) forgetStream(i int) {
	b := s.over[i]
	if i == 0 {
		s.over = s.over[1:]
	} else {
		s.over = slices.Delete(s.over, i, i+1)
	}
	if len(s.over) == 0 {
		s.over = nil
	}
	delete(s.streams, b.num)
	s.keep(-b.counted)
	b.counted, b.forgotten = 0, true
}
