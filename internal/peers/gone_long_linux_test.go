//go:build long

package peers_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/network"
	"github.com/fsm-proxy/fsm-proxy/internal/peers"
)

// The machine of an owner is gone without a word, and nobody ends its lease: what was passed on to it is lost.
func TestOwnerWhoseMachineIsGone(t *testing.T) {
	loopback, ok := network.Own(t)
	if !ok {
		return
	}
	var d database
	asked := make(chan struct{})
	owner := d.begin(t, 2, func(_ http.ResponseWriter, r *http.Request, _ peers.Passenger) { hang(r, asked) }, nil)
	f := d.sender(t).front(t, owner.peer, peers.Passenger{})
	called := make(chan struct{})
	go func() {
		defer close(called)
		if resp, err := f.client.Get(f.url); err == nil {
			resp.Body.Close()
		}
	}()
	receive(t, asked, "the call at its owner")
	loopback(false)
	if got := f.outcome(t); got != peers.Lost {
		t.Errorf("the call was %v", got)
	}
	loopback(true)
	receive(t, called, "what its client hears")
}

// One connection is dead without a word, while others still come about: what was passed on over it is lost.
func TestConnectionThatIsDead(t *testing.T) {
	t.Parallel()
	var d database
	key, raw := newKey(t), listen(t)
	to := journal.Peer{Lease: 2, Address: raw.Addr().String(), Key: key.Hash()}
	d.change(func() { d.leases = append(d.leases, to) })
	ctx, over := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	t.Cleanup(func() { raw.Close(); over(); serving.Wait() }) // once the sender has closed its connections
	serving.Go(func() {
		for {
			c, err := raw.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { dies(ctx, t, c, key) })
		}
	})
	began := time.Now()
	d.sender(t).front(t, to, peers.Passenger{}).post(t, "{}", peers.Lost)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// dies answers greetings over a connection, and is dead from the first other request on: it acknowledges nothing.
func dies(ctx context.Context, t *testing.T, c net.Conn, key *peers.Key) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(mcptest.Patience))
	over := tls.Server(c, key.From())
	for in := bufio.NewReader(over); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if r.Method != http.MethodHead {
			_, _ = io.Copy(io.Discard, r.Body)
			break
		}
		fmt.Fprint(over, "HTTP/1.1 204 No Content\r\n\r\n")
	}
	socket, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	var set error
	err = socket.Control(func(fd uintptr) {
		drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}} // a packet, whole
		set = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	})
	if err = errors.Join(err, set); err != nil {
		t.Error(err)
	}
	<-ctx.Done()
}
