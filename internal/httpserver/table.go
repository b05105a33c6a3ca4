package httpserver

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// table holds the connections of a server, and decides which of them there may be. It is safe for concurrent use.
type table struct {
	limit, share int

	mu   sync.Mutex // guards what follows
	all  map[*conn]struct{}
	load int // of all
	// unknown are the *conn that may be closed for another one: that carried no admitted request, and carry none that
	// is kept. The one that has been there for longest, or idle since a kept request, is first.
	unknown  list.List
	networks map[netip.Prefix]int // the load of those that carried no admitted request; not of those that have no share
	left     chan struct{}        // a connection has ended; nil: nobody waits for that
	closed   int                  // for want of room, and not said yet
	said     time.Time            // when that was said last
}

func (t *table) init(limit, share int) {
	t.limit, t.share = limit, share
	t.all = make(map[*conn]struct{})
	t.networks = make(map[netip.Prefix]int)
}

func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

// add enters a connection. It reports false where there is no room; victim, if it is not nil, has made room and is to
// be cut off.
func (t *table) add(c *conn) (victim *conn, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if victim, ok = t.roomLocked(c.network, nil); !ok {
		return nil, false
	}
	t.all[c] = struct{}{}
	c.place = t.unknown.PushBack(c)
	c.stranger = true
	t.loadLocked(c, 1)
	return victim, true
}

// roomLocked makes room for one more connection of a network, or request of the connection asking. See add.
func (t *table) roomLocked(network netip.Prefix, asking *conn) (victim *conn, ok bool) {
	switch {
	case network.IsValid() && t.networks[network] >= t.share:
		victim = t.oldestLocked(network)
	case t.load >= t.limit:
		victim = t.oldestLocked(netip.Prefix{})
	default:
		return nil, true
	}
	if victim == nil || victim == asking {
		return nil, false
	}
	t.removeLocked(victim)
	return victim, true
}

// loadLocked counts n more, or fewer, for a connection.
func (t *table) loadLocked(c *conn, n int) {
	t.load += n
	t.shareLocked(c, n)
}

func (t *table) shareLocked(c *conn, n int) {
	if !c.stranger || !c.network.IsValid() {
		return
	}
	if t.networks[c.network] += n; t.networks[c.network] == 0 {
		delete(t.networks, c.network)
	}
}

// begin counts a request of an HTTP/2 connection: each but the first takes as much as a connection does. It is as add
// is; end is to be called if it reports true.
func (t *table) begin(c *conn) (victim *conn, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.all[c]; !there {
		return nil, false
	}
	if c.requests > 0 {
		network := netip.Prefix{}
		if c.stranger {
			network = c.network
		}
		if victim, ok = t.roomLocked(network, c); !ok {
			return nil, false
		}
		t.loadLocked(c, 1)
	}
	c.requests++
	return victim, true
}

// end takes back what begin has counted.
func (t *table) end(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.all[c]; !there {
		return
	}
	if c.requests--; c.requests > 0 {
		t.loadLocked(c, -1)
	} else {
		t.freeLocked(c)
	}
}

// oldestLocked is the first of unknown; of one network, if that is valid. Nil: there is none.
func (t *table) oldestLocked(network netip.Prefix) *conn {
	for e := t.unknown.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*conn); !network.IsValid() || c.network == network {
			return c
		}
	}
	return nil
}

// oldest takes out the first connection that may be closed for another one; nil: there is none.
func (t *table) oldest() *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.oldestLocked(netip.Prefix{})
	if c != nil {
		t.removeLocked(c)
	}
	return c
}

// remove takes out a connection, if it is there.
func (t *table) remove(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeLocked(c)
}

func (t *table) removeLocked(c *conn) {
	if _, there := t.all[c]; !there {
		return
	}
	delete(t.all, c)
	t.loadLocked(c, -max(c.requests, 1))
	t.keepLocked(c)
	t.wakeLocked()
}

// known keeps a connection from being closed for another one.
func (t *table) known(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.all[c]; !there {
		return
	}
	t.shareLocked(c, -max(c.requests, 1))
	c.stranger = false
	t.keepLocked(c)
}

// keep is known until free is called, and leaves the connection to the share of its address.
func (t *table) keep(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keepLocked(c)
}

func (t *table) keepLocked(c *conn) {
	if c.place != nil {
		t.unknown.Remove(c.place)
		c.place = nil
	}
}

// free ends what keep began.
func (t *table) free(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.freeLocked(c)
}

func (t *table) freeLocked(c *conn) {
	if _, there := t.all[c]; there && c.stranger && c.place == nil {
		c.place = t.unknown.PushBack(c)
	}
}

// replaceable reports whether a connection may be closed for another one.
func (t *table) replaceable(c *conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.place != nil
}

// each calls f for each connection there is, without holding the table.
func (t *table) each(f func(*conn)) {
	t.mu.Lock()
	all := make([]*conn, 0, len(t.all))
	for c := range t.all {
		all = append(all, c)
	}
	t.mu.Unlock()
	for _, c := range all {
		f(c)
	}
}

// drained waits until there are no connections but those of HTTP/2, or for ctx to end: that is the error.
func (t *table) drained(ctx context.Context) error {
	left := make(chan struct{}, 1)
	t.mu.Lock()
	t.left = left
	t.mu.Unlock()
	for t.http1() > 0 {
		select {
		case <-left:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// http1 is how many connections speak HTTP/1.1, or nothing yet.
func (t *table) http1() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.all {
		if !c.http2.Load() {
			n++
		}
	}
	return n
}

// wake has drained look again.
func (t *table) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wakeLocked()
}

func (t *table) wakeLocked() {
	if t.left == nil {
		return
	}
	select {
	case t.left <- struct{}{}:
	default:
	}
}

// crowdedEach is how often it is said that connections were closed for want of room.
const crowdedEach = 10 * time.Second

// crowded counts a connection that was closed for want of room. It returns how many that were since it was last said,
// 0 where it was said just now.
func (t *table) crowded() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed++
	if now := time.Now(); now.Sub(t.said) >= crowdedEach {
		n, t.closed, t.said = t.closed, 0, now
	}
	return n
}

// Network is what a remote address counts as: itself, of IPv6 its /64, since whoever has one
// address has all of it. It is invalid where there is no address.
func Network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	prefix, _ := addr.Prefix(min(addr.BitLen(), 64))
	return prefix
}

// Share is the network that has a share of what a server has, which an address counts for. It
// is invalid for loopback addresses, behind which many clients or a whole proxy may stand.
func Share(addr netip.Addr) netip.Prefix {
	if addr.Unmap().IsLoopback() {
		return netip.Prefix{}
	}
	return Network(addr)
}

// network is what a connection counts for.
func (s *Server) network(raw net.Conn) netip.Prefix {
	at, ok := raw.RemoteAddr().(*net.TCPAddr)
	if !ok || s.Gateway != nil && s.Gateway(at.AddrPort().Addr().Unmap()) {
		return netip.Prefix{}
	}
	return Share(at.AddrPort().Addr())
}
