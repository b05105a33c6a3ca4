package streamhttp

import (
	"cmp"
	"math"
	"net/netip"
	"slices"

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
