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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/peers"
)

// database is the leases that go on.
type database struct {
	mu      sync.Mutex // guards what follows
	leases  []journal.Peer
	fails   bool
	lookups int
}

func (d *database) Peers(context.Context) ([]journal.Peer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lookups++
	if d.fails {
		return nil, errors.New("the database is gone")
	}
	return slices.Clone(d.leases), nil
}

func (d *database) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// end ends a lease.
func (d *database) end(lease int64) {
	d.change(func() {
		d.leases = slices.DeleteFunc(d.leases, func(p journal.Peer) bool { return p.Lease == lease })
	})
}

func (d *database) lookedUp() (n int) {
	d.change(func() { n = d.lookups })
	return n
}

// process is one of those that share a database.
type process struct {
	*peers.Peers
	key  *peers.Key
	peer journal.Peer
}

// begin begins a process with a lease; change may change its configuration.
func (d *database) begin(t testing.TB, lease int64, handler func(http.ResponseWriter, *http.Request, peers.Passenger), change func(*peers.Config)) *process {
	t.Helper()
	key := newKey(t)
	l := listen(t)
	cfg := peers.Config{
		Key: key, Peers: d.Peers, Lease: func() int64 { return lease }, Trusts: func(of int64) bool { return of == lease },
		Handler: handler, Every: 10 * time.Millisecond,
	}
	if change != nil {
		change(&cfg)
	}
	p := &process{peers.New(cfg), key, journal.Peer{Lease: lease, Holder: fmt.Sprint("process ", lease), Address: l.Addr().String(), Key: key.Hash()}}
	d.change(func() { d.leases = append(d.leases, p.peer) })
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		p.Close(ctx)
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serving ended: %v", err)
		}
	})
	return p
}

// sender begins a process to which nothing is passed on.
func (d *database) sender(t testing.TB) *process {
	return d.begin(t, 1, func(http.ResponseWriter, *http.Request, peers.Passenger) {
		t.Error("a request was passed on to who passes on")
	}, nil)
}

func newKey(t testing.TB) *peers.Key {
	t.Helper()
	key, err := peers.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// after is what is written behind an event stream that has broken off.
const after = "data: after\n\n"

// front is where clients ask, which passes all on to one process.
type front struct {
	url      string
	client   *http.Client
	outcomes chan peers.Outcome
}

func (p *process) front(t testing.TB, to journal.Peer, who peers.Passenger) *front {
	t.Helper()
	f := &front{outcomes: make(chan peers.Outcome, 100)}
	server := &httpserver.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpserver.AllowBodyTime(w, r)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("reading what a client sends: %v", err)
		}
		outcome := peers.Answered // of an answer that breaks off
		defer func() { f.outcomes <- outcome }()
		switch outcome = p.Pass(w, r, to, body, who); outcome {
		case peers.Answered:
		case peers.Broken:
			_, _ = io.WriteString(w, after)
		default:
			w.WriteHeader(http.StatusBadGateway)
		}
		clear(body)
	})}
	l := listen(t)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	transport := &http.Transport{DisableCompression: true}
	f.url, f.client = "http://"+l.Addr().String(), &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, stop := context.WithTimeout(context.Background(), mcptest.Patience)
		defer stop()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("ending the listener of clients: %v", err)
		}
		<-served
	})
	return f
}

// post sends a body, and wants an outcome.
func (f *front) post(t testing.TB, body string, want peers.Outcome) {
	t.Helper()
	resp, err := f.client.Post(f.url+"/mcp", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if got := f.outcome(t); got != want {
		t.Errorf("the request was %v, want %v", got, want)
	}
}

func (f *front) outcome(t testing.TB) peers.Outcome {
	t.Helper()
	return receive(t, f.outcomes, "what became of a request")
}

func receive[T any](t testing.TB, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(mcptest.Patience):
		t.Fatalf("waited in vain: %s", what)
	}
	return v
}

// dial connects by a configuration, and returns what to read and write by.
func dial(t testing.TB, address string, cfg *tls.Config) (*tls.Conn, *bufio.Reader) {
	t.Helper()
	c, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(mcptest.Patience))
	return c, bufio.NewReader(c)
}

// hang reads a request, says so, and waits until who has sent it goes away.
func hang(r *http.Request, asked chan<- struct{}) {
	_, _ = io.Copy(io.Discard, r.Body)
	if asked != nil {
		close(asked)
	}
	<-r.Context().Done()
}
