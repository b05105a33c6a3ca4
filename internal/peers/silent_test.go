package peers_test

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/peers"
)

// hole carries connections to an address. Once it swallows, all that comes is taken, and lost, on new connections, too.
type hole struct {
	net.Listener
	swallow chan struct{} // closed: it does
}

func newHole(t *testing.T, to string) *hole {
	t.Helper()
	h := &hole{listen(t), make(chan struct{})}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := h.Accept()
			if err != nil {
				return
			}
			running.Go(func() { h.carry(t, from, to) })
		}
	})
	t.Cleanup(func() {
		h.Close()
		running.Wait()
	})
	return h
}

func (h *hole) carry(t *testing.T, a net.Conn, to string) {
	b, err := net.Dial("tcp", to)
	if err != nil {
		t.Error(err)
		return
	}
	var back sync.WaitGroup
	back.Go(func() { h.pump(b, a) })
	h.pump(a, b)
	a.Close()
	b.Close()
	back.Wait()
}

func (h *hole) pump(from, to net.Conn) {
	for buffer := make([]byte, 32<<10); ; {
		n, err := from.Read(buffer)
		select {
		case <-h.swallow:
			n = 0
		default:
		}
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// A process that answers nothing any more is not waited for, though what is sent to it is acknowledged on the way and its
// lease goes on: a call is lost, and a stream breaks off. Nothing is sent over connections that were idle then.
func TestOwnerThatAnswersNothing(t *testing.T) {
	t.Parallel()
	const idle = 3
	var d database
	var all sync.WaitGroup
	all.Add(idle)
	asked := make(chan struct{})
	owner := d.begin(t, 2, func(w http.ResponseWriter, r *http.Request, _ peers.Passenger) {
		switch r.Method {
		case http.MethodPut:
			all.Done()
			all.Wait() // each has a connection of its own
		case http.MethodGet:
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			hang(r, nil)
		default:
			hang(r, asked)
		}
	}, nil)
	way := newHole(t, owner.peer.Address)
	to := owner.peer
	to.Address = way.Addr().String()
	sender := d.sender(t)
	calls, streams := sender.front(t, to, peers.Passenger{}), sender.front(t, to, peers.Passenger{})
	called := make(chan struct{})
	go func() { defer close(called); calls.post(t, "{}", peers.Lost) }()
	receive(t, asked, "the call at its owner")
	stream, err := streams.client.Get(streams.url)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	var puts sync.WaitGroup
	quick := sender.front(t, to, peers.Passenger{})
	for range idle {
		puts.Go(func() {
			put, err := http.NewRequest(http.MethodPut, quick.url, http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := quick.client.Do(put)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		})
	}
	puts.Wait()
	close(way.swallow)
	receive(t, called, "the end of the call")
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the stream has ended by %v", err)
	}
	if got := streams.outcome(t); got != peers.Broken {
		t.Errorf("the stream was %v", got)
	}
	calls.post(t, "{}", peers.NotSent)
}
