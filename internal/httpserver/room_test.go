package httpserver

import (
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// door lets in who asks for /in.
func door(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/in" {
		Admit(w)
		return
	}
	w.WriteHeader(http.StatusUnauthorized)
}

const (
	in  = "GET /in HTTP/1.1\r\nHost: h\r\n\r\n"
	out = "GET /out HTTP/1.1\r\nHost: h\r\n\r\n"
)

// TestRoomIsMadeByStrangers: at the limit the connection goes that carried no admitted request and has been idle for
// longest; one that has is never closed for another.
func TestRoomIsMadeByStrangers(t *testing.T) {
	srv := &Server{MaxConnections: 4}
	r := serving(t, srv, door)
	known := r.connect()
	known.send(in).want(200, "")
	silent, first, second := r.connect(), r.connect(), r.connect()
	first.send(out).want(401, "")
	second.send(out).want(401, "")
	mcptest.Await(t, "the last answer is over", func() bool { return srv.idle() == 4 })
	third := r.connect()
	third.send(out).want(401, "")
	silent.gone()
	mcptest.Await(t, "the last answer is over", func() bool { return srv.idle() == 4 })
	first.send(out).want(401, "") // now the second has been idle for longer
	mcptest.Await(t, "the last answer is over", func() bool { return srv.idle() == 4 })
	r.connect().send(in).want(200, "")
	second.gone()
	r.connect().send(in).want(200, "")
	r.connect().send(in).want(200, "")
	third.gone()
	first.gone()
	r.connect().gone() // all that are there are known
	known.send(in).want(200, "")
	if n := srv.Connections(); n != 4 {
		t.Errorf("%d connections", n)
	}
}

// idle is how many connections wait for a request.
func (s *Server) idle() (n int) {
	s.table.each(func(c *conn) {
		if c.quiet.Load() {
			n++
		}
	})
	return n
}

// from is a connection from somewhere.
type from struct {
	net.Conn
	addr net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }

// TestAddressShare: one address has its share of the connections that carry no admitted request, loopback and gateways
// have all, and an IPv6 network counts as one.
func TestAddressShare(t *testing.T) {
	srv := &Server{MaxConnections: 8, AddressShare: 2, Gateway: func(a netip.Addr) bool { return a == netip.MustParseAddr("192.0.2.9") }}
	srv.fill()
	connect := func(addr string) (*conn, net.Conn) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { ours.Close(); theirs.Close() })
		return srv.accept(from{ours, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))}), theirs
	}
	closed := func(theirs net.Conn) bool {
		_ = theirs.SetReadDeadline(time.Unix(1, 0))
		_, err := theirs.Read(make([]byte, 1))
		e, ok := err.(net.Error)
		return !ok || !e.Timeout()
	}
	other, otherEnd := connect("192.0.2.1:1")
	oldest, oldestEnd := connect("[2001:db8::1]:1")
	_, secondEnd := connect("[2001:db8::2]:1")
	if closed(oldestEnd) {
		t.Fatal("closed within the share")
	}
	_, thirdEnd := connect("[2001:db8::3]:1")
	if !closed(oldestEnd) || closed(secondEnd) || closed(thirdEnd) || closed(otherEnd) || other == nil || oldest == nil {
		t.Error("beyond its share an address loses the connection that has been idle for longest, and no other")
	}
	for range 2 { // who is known does not count
		c, _ := connect("192.0.2.1:2")
		srv.table.known(c)
	}
	if closed(otherEnd) {
		t.Error("known connections count for their address")
	}
	for _, addr := range []string{"192.0.2.9:1", "127.0.0.1:1", "[::1]:1"} {
		if c, _ := connect(addr); c.network.IsValid() {
			t.Errorf("%s has a share", addr)
		}
	}
	if n := len(srv.table.networks); n != 2 {
		t.Errorf("%d addresses are counted", n)
	}
	srv.table.each((*conn).cut)
	if n := len(srv.table.networks) + srv.table.unknown.Len() + srv.Connections(); n != 0 {
		t.Errorf("%d are left", n)
	}
}
