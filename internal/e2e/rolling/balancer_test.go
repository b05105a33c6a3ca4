//go:build unix

package rolling

import (
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// backend is one place behind the balancer: a process, and after it the next one.
type backend struct {
	mu      sync.Mutex // guards what follows
	address string
	ready   bool // new sessions come here
}

func (b *backend) set(address string, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.address, b.ready = address, ready
}

func (b *backend) get() (address string, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.address, b.ready
}

const headerSession = "Mcp-Session-Id"

// balancer sends each session where it began for as long as somebody is there, and new ones in turn to those that are
// ready. It sends nothing twice.
type balancer struct {
	backends  []*backend
	transport *http.Transport
	proxy     *httputil.ReverseProxy

	mu     sync.Mutex          // guards what follows
	sticky map[string]*backend // by session
	turn   int
	lost   []error // requests that were sent and not answered
	away   int     // requests that nobody took: not sent
}

func newBalancer(t *testing.T, backends int) *balancer {
	b := &balancer{sticky: make(map[string]*backend), transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	for range backends {
		b.backends = append(b.backends, new(backend))
	}
	b.proxy = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", b.choose(r.In) },
		ModifyResponse: b.began,
		Transport:      b.transport,
		FlushInterval:  -1,
		ErrorHandler:   b.failed,
	}
	t.Cleanup(b.transport.CloseIdleConnections)
	return b
}

// choose returns the address for a request.
func (b *balancer) choose(r *http.Request) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.sticky[r.Header.Get(headerSession)]; at != nil {
		address, _ := at.get()
		return address
	}
	for range b.backends {
		b.turn = (b.turn + 1) % len(b.backends)
		if address, ready := b.backends[b.turn].get(); ready {
			return address
		}
	}
	return "127.0.0.1:1"
}

// began remembers where a session has begun.
func (b *balancer) began(answer *http.Response) error {
	id := answer.Header.Get(headerSession)
	if id == "" {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.backends {
		if address, _ := at.get(); address == answer.Request.URL.Host {
			b.sticky[id] = at
		}
	}
	return nil
}

// failed answers a request that has no answer: nobody was there, or it is lost.
func (b *balancer) failed(w http.ResponseWriter, r *http.Request, err error) {
	dial, ok := errors.AsType[*net.OpError](err)
	b.mu.Lock()
	if ok && dial.Op == "dial" {
		b.away++
	} else if r.Context().Err() == nil {
		b.lost = append(b.lost, err)
	}
	b.mu.Unlock()
	w.WriteHeader(http.StatusServiceUnavailable)
}

// fleet is the proxies behind a balancer, all before the same upstream.
type fleet struct {
	t         *testing.T
	balancer  *balancer
	upstream  []string // its arguments
	policy    string
	processes []*mcptest.Process
}

func newFleet(t *testing.T, size int, upstream ...string) *fleet {
	f := &fleet{t: t, balancer: newBalancer(t, size), policy: mcptest.WritePolicy(t, walk), upstream: upstream}
	f.processes = make([]*mcptest.Process, size)
	for i := range f.processes {
		f.start(i)
	}
	return f
}

// start has a new process in a place, and says so to the balancer when that listens.
func (f *fleet) start(i int) {
	f.t.Helper()
	address := mcptest.FreeAddress(f.t)
	args := []string{mcptest.Proxy(f.t), "run", "--listen", address, "--policy", f.policy, "--max-upstreams", "512"}
	f.processes[i] = mcptest.Start(f.t, nil, append(args, f.upstream...)...)
	f.processes[i].AwaitListening(address)
	f.balancer.backends[i].set(address, true)
}

// restart ends the process in a place and starts another. meanwhile is called when it takes nothing new any more; the
// balancer hears of that only afterwards.
func (f *fleet) restart(i int, meanwhile func()) {
	f.t.Helper()
	old := f.processes[i]
	if err := old.Process.Signal(terminate); err != nil {
		f.t.Fatal(err)
	}
	old.Log().Await(f.t, "ending")
	meanwhile()
	address, _ := f.balancer.backends[i].get()
	f.balancer.backends[i].set(address, false)
	if code := old.ExitCode(); code != 0 {
		f.t.Errorf("exit code %d", code)
	}
	f.start(i)
}
