package streamhttp

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"sync"
)

// table holds the sessions of a server and decides how many there may be.
type table struct {
	limit, share int

	mu       sync.RWMutex
	sessions map[string]*session  // guarded by mu
	count    int                  // guarded by mu: sessions and those about to be
	peers    map[netip.Prefix]int // guarded by mu: the same by remote network
	refused  int                  // guarded by mu: since it was last asked
}

func (t *table) init(cfg *ServerConfig) {
	t.limit, t.share = cfg.Sessions, cfg.Share
	t.sessions = make(map[string]*session)
	t.peers = make(map[netip.Prefix]int)
}

// newID returns a session id of 128 random bits, in visible ASCII, and what
// stands for it in logs and event ids.
func newID() (id, tag string) {
	id = rand.Text()
	sum := sha256.Sum256([]byte(id))
	return id, hex.EncodeToString(sum[:4])
}

// network is whom a session counts for: the remote address, of IPv6 the /64.
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

// reserve makes room for a session and reports whether there is any.
func (t *table) reserve(peer netip.Prefix) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count >= t.limit || peer.IsValid() && t.peers[peer] >= t.share {
		t.refused++
		return false
	}
	t.count++
	if peer.IsValid() {
		t.peers[peer]++
	}
	return true
}

// release gives up what reserve made room for.
func (t *table) release(peer netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.releaseLocked(peer)
}

func (t *table) releaseLocked(peer netip.Prefix) {
	t.count--
	if !peer.IsValid() {
		return
	}
	if t.peers[peer]--; t.peers[peer] == 0 {
		delete(t.peers, peer)
	}
}

// add puts a session into the room reserved for it.
func (t *table) add(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sessions[s.id] = s
}

func (t *table) remove(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions[s.id] == s {
		delete(t.sessions, s.id)
		t.releaseLocked(s.peer)
	}
}

func (t *table) find(id string) *session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sessions[id]
}

func (t *table) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.sessions)
}

// all appends all sessions to list.
func (t *table) all(list []*session) []*session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, s := range t.sessions {
		list = append(list, s)
	}
	return list
}

// takeRefused returns how many sessions were refused since the last call.
func (t *table) takeRefused() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.refused
	t.refused = 0
	return n
}
