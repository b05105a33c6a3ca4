package proxy

import (
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/asks"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/drain"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/operator"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/settings"
	"github.com/fsm-proxy/fsm-proxy/proxy/subscriptions"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// Config is what a Proxy works with.
type Config = settings.Config

// Proxy relays between clients and one wrapped server. It is safe for
// concurrent use.
type Proxy struct {
	// Runs are those of its clients.
	Runs *runs.Registry

	cfg        Config
	lists      surface.Source
	greets     surface.Config
	routes     routes
	unserved   surface.Unserved
	uplinks    subscriptions.Uplinks
	ending     sync.WaitGroup
	drain      drain.Drain
	forRunless func() *session // where requests without a run go
	signals    catalogue.Signals
	handles    *catalogue.Handles // nil: stateless clients bring none
	asks       asks.Config
	inputs     bridge.Inputs
	keeps      surface.Keeps
	// operations is where those of sessions without a revision are measured.
	operations observe.Operations

	changing sync.Mutex // held while policy, mode or lock change, so that clients hear of the changes one by one

	mu       sync.RWMutex          // guards what follows
	sessions map[*session]struct{} // clients', and those of runs
	closed   bool
}

// Operators is where those ask who are no clients.
func (p *Proxy) Operators() *operator.Desk {
	return &operator.Desk{Runs: p.Runs, TurnTimeout: p.cfg.TurnTimeout, MaxQueue: p.cfg.MaxQueue, Ending: p.drain.Taking,
		Log: p.cfg.Log, Telemetry: &p.cfg.Telemetry, Journal: p.cfg.Journal}
}

// Policy is the policy in force.
func (p *Proxy) Policy() *policy.Policy { return p.Runs.Policy() }

// lasts runs f on a goroutine that Close waits for. It reports false where Close
// was called: that may be waiting for the last one already.
func (p *Proxy) lasts(f func()) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.closed {
		p.ending.Go(f)
	}
	return !p.closed
}

// open returns the sessions there are.
func (p *Proxy) open() []*session {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*session, 0, len(p.sessions))
	for s := range p.sessions {
		all = append(all, s)
	}
	return all
}

func (p *Proxy) remove(s *session) {
	p.mu.Lock()
	delete(p.sessions, s)
	p.mu.Unlock()
	p.Runs.Part(s.run, s, s.goesOn)
}
