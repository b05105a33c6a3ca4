// Package peers passes HTTP requests on among the processes that share a store: a request for a run that another
// process has goes to that one, whole and once, and its answer comes back as it is written.
//
// Processes speak HTTP/1.1 over TLS 1.3, where both sides show a certificate that was made at their start and whose hash
// stands in their lease. Nobody else gets in. A request that was passed on is for one lease of the process that it is sent
// to, which takes it only while it may act by that one.
package peers

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// Config is what a process passes requests on by.
type Config struct {
	// Key is what this process is known by.
	Key *Key
	// Peers looks up the processes whose leases go on. It is called at most four times a second.
	Peers func(ctx context.Context) ([]journal.Peer, error)
	// Lease is the number of this process's lease now.
	Lease func() int64
	// Trusts reports whether this process may act by a lease.
	Trusts func(lease int64) bool
	// Handler answers what was passed on to this process. The request is as it came to the sender, but for its
	// credentials and what is for one connection alone; its RemoteAddr is the Passenger's. It must not be passed on
	// again: what this process does not have it answers by [NotHere], before it has done anything.
	Handler func(w http.ResponseWriter, r *http.Request, who Passenger)
	// Every is how often leases are looked at while a request is passed on; 0: 1.25 s.
	Every time.Duration
	// Connections is how many there may be from other processes, and so how many requests are under way that they
	// have passed on; 0: 10,000.
	Connections int
	// Log is told why requests could not be passed on; nil: nothing is logged.
	Log hclog.Logger
}

func (c *Config) fill() {
	c.Every = cmp.Or(c.Every, 1250*time.Millisecond)
	c.Connections = cmp.Or(c.Connections, 10_000)
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
}

const (
	// rosterLasts is for how many times Every a process is known whose lease went on.
	rosterLasts = 4
	// strangers is how many connections one address may have from which no process has asked yet.
	strangers = 512
	// maxHeader bounds the header of a request that is passed on: it was within the limit of another listener.
	maxHeader = 64 << 10
)

// Peers is the processes that share a store, for one of them. Make it with [New]. It is safe for concurrent use.
type Peers struct {
	cfg    Config
	roster *roster
	server httpserver.Server
	known  askers

	mu      sync.Mutex // guards what follows
	passes  map[*pass]struct{}
	routes  map[target]*route
	watch   *time.Timer // calls look; nil: there was nothing to watch yet
	watched bool        // watch is set, or look goes on
	closing bool
	passed  sync.WaitGroup // passes; Add is called under mu, and not once closing is set
	looks   sync.WaitGroup // watched, and what route.probing is set for
}

// New returns the others of a process. Close is to be called at the end.
func New(cfg Config) *Peers {
	cfg.fill()
	p := &Peers{
		cfg: cfg, roster: newRoster(cfg.Peers, rosterLasts*cfg.Every),
		passes: make(map[*pass]struct{}), routes: make(map[target]*route),
	}
	p.server = httpserver.Server{
		Handler: http.HandlerFunc(p.take), HeaderTimeout: 10 * time.Second, WriteTimeout: writeTime, MaxHeaderBytes: maxHeader,
		MaxConnections: cfg.Connections, AddressShare: min(strangers, cfg.Connections),
		TLSConfig: cfg.Key.from(p.knows), Log: cfg.Log,
	}
	return p
}

// Serve takes what others pass on at a listener, until it fails or Close is called: then the error is
// [http.ErrServerClosed].
func (p *Peers) Serve(l net.Listener) error {
	if socket, ok := l.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			_ = endSilent(raw, writeTime+silence) // else after a quarter of an hour
		}
	}
	return p.server.Serve(l)
}

// knows reports whether a certificate's hash is that of another process whose lease goes on.
func (p *Peers) knows(ctx context.Context, hash [32]byte) bool {
	return hash != p.cfg.Key.hash && p.roster.knows(ctx, hash)
}

// Close takes and passes on nothing new, waits for what is under way, and closes all connections. What goes on when ctx
// ends is cut off.
func (p *Peers) Close(ctx context.Context) {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	var served sync.WaitGroup
	served.Go(func() {
		if p.server.Shutdown(ctx) != nil {
			p.server.Close()
		}
	})
	cut := context.AfterFunc(ctx, p.BreakOff)
	p.passed.Wait()
	cut()
	served.Wait()
	p.roster.close()
	p.looks.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.routes {
		w.CloseIdleConnections()
	}
}

// BreakOff takes and passes on nothing new, and waits for the answers to what is under way no longer: what was sent is [Lost].
func (p *Peers) BreakOff() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closing = true
	for x := range p.passes {
		x.end(errEnding)
	}
}

// Closed reports whether nothing is passed on any more.
func (p *Peers) Closed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closing
}
