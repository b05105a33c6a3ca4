package streamhttp

import (
	"net/netip"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// party is whom something counts for: a remote network, where that is to be
// bounded, and a principal, where there is one.
type party struct {
	network netip.Prefix
	who     wire.Principal
}

func partyOf(from PeerInfo) party { return party{network(from.RemoteAddr), from.Principal} }

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

// give gives back the room of one.
func (q *quota) give(by party) {
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

// network is what a request's remote address counts as.
func network(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	return httpserver.Network(at.Addr())
}
