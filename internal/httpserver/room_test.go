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

// TestRoomIsMadeByStrangers: at the limit the connection goes that carried no admitted request and has been there for
// longest, however often it has asked; one that has is never closed for another.
func TestRoomIsMadeByStrangers(t *testing.T) {
	srv := &Server{MaxConnections: 4}
	r := serving(t, srv, door)
	known := r.connect()
	known.send(in).want(200, "")
	first, silent, second := r.connect(), r.connect(), r.connect()
	second.send(out).want(401, "")
	first.send(out).want(401, "")
	third := r.connect()
	third.send(out).want(401, "")
	first.gone()
	r.connect().send(in).want(200, "")
	silent.gone()
	r.connect().send(in).want(200, "")
	second.gone()
	r.connect().send(in).want(200, "")
	third.gone()
	r.connect().gone() // all that are there are known
	known.send(in).want(200, "")
	if n := srv.Connections(); n != 4 {
		t.Errorf("%d connections", n)
	}
}

// TestRequestsOfHTTP2TakeRoom: of those that a connection carries at once each but the first takes the room of one.
func TestRequestsOfHTTP2TakeRoom(t *testing.T) {
	srv := &Server{MaxConnections: 4, AddressShare: 2}
	srv.fill()
	connect := func(addr string) *conn {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { ours.Close(); theirs.Close() })
		return srv.accept(from{ours, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))})
	}
	ask := func(c *conn, want bool) {
		t.Helper()
		if _, ok := srv.table.begin(c); ok != want {
			t.Errorf("a request: %v", ok)
		}
	}
	stranger, known := connect("192.0.2.1:1"), connect("192.0.2.2:1")
	srv.table.known(known)
	ask(stranger, true)
	ask(stranger, true)
	ask(stranger, false) // that is more than its address has
	ask(known, true)
	ask(known, true)
	ask(known, true) // the stranger makes room
	ask(stranger, false)
	ask(known, true)
	ask(known, false)
	if connect("192.0.2.3:1") != nil {
		t.Error("there was room for a connection")
	}
	srv.table.end(known)
	if connect("192.0.2.3:1") == nil {
		t.Error("there was no room for a connection")
	}
	for range 3 {
		srv.table.end(known)
	}
	srv.table.end(stranger)
	if load := srv.table.load; load != 2 {
		t.Errorf("two connections count for %d", load)
	}
	srv.table.each((*conn).cut)
	if n := len(srv.table.networks) + srv.table.unknown.Len() + srv.table.load; n != 0 {
		t.Errorf("%d are left", n)
	}
}

// TestKeptIsNotClosedForRoom: what a connection carries that is kept is not lost, and once it is idle it is like others.
func TestKeptIsNotClosedForRoom(t *testing.T) {
	kept, go_ := make(chan struct{}), make(chan struct{})
	srv := &Server{MaxConnections: 1}
	r := serving(t, srv, func(w http.ResponseWriter, r *http.Request) {
		Keep(w)
		kept <- struct{}{}
		<-go_
	})
	first := r.connect()
	first.send(in)
	<-kept
	r.connect().gone()
	close(go_)
	first.want(200, "")
	mcptest.Await(t, "the connection is idle", func() bool { return srv.idle() == 1 })
	second := r.connect()
	first.gone()
	second.send(in)
	<-kept
	second.want(200, "")
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
