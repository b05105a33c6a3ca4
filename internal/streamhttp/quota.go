package streamhttp

import "net/netip"

// quota is how many of something there may be, in all and for one remote network,
// so that a flood locks out itself. It is not safe for concurrent use.
type quota struct {
	limit, share int
	count        int
	peers        map[netip.Prefix]int // of count
	refused      int                  // since it was last asked
}

func newQuota(limit, share int) quota {
	return quota{limit: limit, share: share, peers: make(map[netip.Prefix]int)}
}

// take makes room for one more and reports whether there is any.
func (q *quota) take(peer netip.Prefix) bool {
	if q.count >= q.limit || peer.IsValid() && q.peers[peer] >= q.share {
		q.refused++
		return false
	}
	q.count++
	if peer.IsValid() {
		q.peers[peer]++
	}
	return true
}

// give gives back the room of one.
func (q *quota) give(peer netip.Prefix) {
	q.count--
	if !peer.IsValid() {
		return
	}
	if q.peers[peer]--; q.peers[peer] == 0 {
		delete(q.peers, peer)
	}
}

// takeRefused returns how often there was no room since the last call.
func (q *quota) takeRefused() int {
	n := q.refused
	q.refused = 0
	return n
}

// network is whom something counts for: the remote address, of IPv6 the /64.
// It is invalid for loopback addresses, whose share is not bounded.
func network(remote string) netip.Prefix {
	ap, err := netip.ParseAddrPort(remote)
	addr := ap.Addr().Unmap()
	if err != nil || addr.IsLoopback() {
		return netip.Prefix{}
	}
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	prefix, _ := addr.WithZone("").Prefix(bits)
	return prefix
}
