package proxy

import (
	"context"
	"maps"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
)

// New returns a Proxy. It opens no connection yet.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, routes: allRoutes(), mode: cfg.Mode, sessions: make(map[*session]struct{}), runs: make(map[*liveRun]struct{})}
	p.policy.Store(cfg.Policy)
	p.pins.Store(catalogue.NewPins(cfg.Lock))
	p.found, p.gone, p.owned = make(map[runID]*liveRun), make(map[runID]wire.Principal), make(map[wire.Principal]int)
	p.lists = catalogue.New(cfg.Refusals == RefusalsOpaque)
	p.drain.init()
	p.uplinks.Config = link.Config{Dial: cfg.Dial, Timeout: cfg.ConnectTimeout, Ending: p.drain.taking, Log: cfg.Log}
	p.uplinks.Meter = cfg.Telemetry.Meter
	p.inputs.Timeout, p.inputs.Most = cfg.AskTimeout, cfg.MaxInFlight
	if cfg.key(bridge.Stateless).Kind == KeyHandle {
		p.handles = catalogue.NewHandles(cfg.HandleArgument, handle.Lifetime{Idle: cfg.RunIdle, Age: cfg.RunAge})
	}
	p.operations = cfg.Telemetry.Operations("")
	if p.mode == Shadow {
		p.sayMode(p.mode)
	}
	if cfg.Share {
		p.uplinks.Share(p.sharedOpening)
	}
	return p, nil
}

// Open makes the session of the only client there is. own is the stream for what
// belongs to no request of the client's.
// It takes messages of clients with sessions and without.
func (p *Proxy) Open(own wire.Stream) wire.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg.key(bridge.Client{}).Kind == KeyProcess {
		return &pipe{session: p.openLockedOn(p.processRunLocked(), observe.Peer{}, own)}
	}
	return &pipe{session: p.openLockedOn(p.runOfSessionLocked(), observe.Peer{}, own)}
}

// OpenFor makes the session of a new client, one of several. The error says, to the
// client, why it has none: what its key needs is missing.
func (p *Proxy) OpenFor(peer observe.Peer, own wire.Stream) (wire.Session, error) {
	key := p.cfg.key(bridge.Client{})
	var r *liveRun
	if why := p.besideRun(bridge.Client{}, &peer); why != nil {
		return nil, p.noSession(why, &peer)
	}
	if key.Kind != KeyDefault && key.Kind != KeySession {
		var why *noRun
		if r, why = p.find(bridge.Client{}, &peer, "", true); why != nil {
			return nil, p.noSession(why, &peer)
		}
	}
	peer.Header = nil // it is the first request's, and read
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r == nil:
		r = p.runOfSessionLocked()
	case r.ended.Load(): // just now
		return nil, p.noSession(errNotFound, &peer)
	}
	return p.openLockedOn(r, peer, own), nil
}

// noSession is why a client has no session, with what it can do.
func (p *Proxy) noSession(why *noRun, peer *observe.Peer) error {
	told := &noRun{why.code, why.text + p.wayOn(why, bridge.Client{})}
	p.cfg.Log.Info("refused", peer.About([]any{"code", why.code.String(), "method", "initialize", "reason", told.text})...)
	return told
}

func (p *Proxy) runOfSessionLocked() *liveRun {
	r := p.newRunLocked()
	r.key.Kind = KeySession
	return r
}

// openLockedOn makes a session on a run.
func (p *Proxy) openLockedOn(r *liveRun, peer observe.Peer, own wire.Stream) *session {
	if r.name == "" {
		r.name = peer.Session
	}
	return p.newSessionLocked(&session{own: own, run: r, peer: peer})
}

// Drained says what became of the requests that were under way when a drain
// began.
type Drained struct {
	Finished  int   // came to their own end in time; those not yet sent were told so
	BrokenOff int   // had no answer in time: outcome_unknown, and cancelled upstream
	Refused   int64 // came later, and were told so
}

// Refuse begins a drain: nothing new is taken any more.
func (p *Proxy) Refuse() { p.drain.begin() }

// Draining reports whether a drain has begun, by [Proxy.Refuse], [Proxy.Drain]
// or [Proxy.Close].
func (p *Proxy) Draining() bool { return p.drain.begun.Load() }

// Drain lets what is under way come to its end. From now on a request is
// refused, pings and lists excepted; what was not sent yet, because it waits for the
// run's turn or for a connection, is answered so. What the upstream has got it
// may answer until ctx ends; then it is cancelled there, and its client told
// that the outcome is unknown. Cancellations, and answers to what the upstream
// asks, pass all the while. Sessions stay open: [Proxy.Close] ends them.
func (p *Proxy) Drain(ctx context.Context) Drained {
	before := p.underWay() // what was not sent yet may be over by the time that the drain has begun
	p.drain.begin()
	calls := either(before, p.underWay())
	left := slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return c.over(ctx) })
	p.drain.stopLasting()
	for _, c := range left {
		c.breakOff()
	}
	last, stop := context.WithTimeout(context.Background(), breakTime)
	defer stop()
	for _, c := range left {
		c.over(last)
	}
	return Drained{Finished: len(calls) - len(left), BrokenOff: len(left), Refused: p.drain.late.Load()}
}

// either are the calls that are in one list or the other, each once.
func either(a, b []*call) []*call {
	all := make(map[*call]struct{}, len(a)+len(b))
	for _, c := range slices.Concat(a, b) {
		all[c] = struct{}{}
	}
	return slices.Collect(maps.Keys(all))
}

// underWay returns the requests under way in all sessions.
func (p *Proxy) underWay() (all []*call) {
	for _, s := range p.open() {
		all = append(all, s.underWay()...)
	}
	return all
}

// Close ends all sessions and waits until what they had under way is over,
// at most for the cancel grace. A session opened from then on has ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stopSweeping()
	p.drain.begin()
	p.drain.stopLasting()
	for _, s := range p.open() {
		s.Close()
	}
	p.ending.Wait()
	p.uplinks.Close()
}
