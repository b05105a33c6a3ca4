package proxy

import (
	"context"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/asks"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/drain"
	"github.com/fsm-proxy/fsm-proxy/proxy/flight"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// New returns a Proxy. It opens no connection yet.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, routes: allRoutes(), sessions: make(map[*session]struct{})}
	p.Runs = runs.New(p.cfg.Runs(p.goOn))
	p.forRunless = sync.OnceValue(func() *session {
		s := p.newServer(p.Runs.BeginForRunless(p.handles != nil))
		p.Runs.Join(s.run, s)
		return s
	})
	p.lists.Pins.Store(catalogue.NewPins(cfg.Lock))
	opaque := cfg.Refusals == refusal.Opaque
	p.lists.Catalogue, p.lists.Policy, p.lists.Go = catalogue.New(opaque), p.Policy, p.lasts
	p.lists.Telemetry, p.lists.Log = &p.cfg.Telemetry, cfg.Log
	p.lists.Reading = func() (context.Context, context.CancelFunc) { return p.drain.ListContext(cfg.CallTimeout) }
	p.greets = surface.Config{Surface: cfg.Surface, Annotate: cfg.Annotate, Opaque: opaque, NoHint: cfg.NoHint, Shared: cfg.Share, Version: cfg.Version}
	p.drain.Init()
	p.uplinks.Config = link.Config{Dial: cfg.Dial, Timeout: cfg.ConnectTimeout, Ending: p.drain.Taking, Log: cfg.Log}
	p.uplinks.Meter = cfg.Telemetry.Meter
	p.asks = asks.Config{Timeout: cfg.AskTimeout, Most: cfg.MaxInFlight, Log: cfg.Log}
	p.inputs.Timeout, p.inputs.Most = cfg.AskTimeout, cfg.MaxInFlight
	if p.Runs.Key(bridge.Stateless).Kind == runs.Handle {
		p.handles = catalogue.NewHandles(cfg.HandleArgument, p.Runs.Lifetime())
		p.greets.Handles, p.lists.Argument = p.handles.Hint, p.handles.Argument
	}
	p.operations = cfg.Telemetry.Operations("")
	if cfg.Share {
		p.uplinks.Share(p.sharedOpening)
	}
	return p, nil
}

// Open makes the session of the only client there is. own is the stream for what
// belongs to no request of the client's.
// It takes messages of clients with sessions and without.
func (p *Proxy) Open(own wire.Stream) wire.Session {
	r := p.Runs.OfSession
	if p.Runs.Key(bridge.Client{}).Kind == runs.Process {
		r = func(string) *runs.Run { return p.Runs.Process() }
	}
	s := p.newSession(&session{own: own, run: r("")})
	p.Runs.Join(s.run, s)
	return &bridge.Pipe{Piped: s}
}

// OpenFor makes the session of a new client, one of several. The error says, to the
// client, why it has none: what its key needs is missing.
func (p *Proxy) OpenFor(peer observe.Peer, own wire.Stream) (wire.Session, error) {
	var r *runs.Run
	why := p.Runs.Beside(bridge.Client{}, &peer)
	if why == nil {
		switch p.Runs.Key(bridge.Client{}).Kind {
		case runs.Default, runs.Session:
			r, why = p.Runs.OfClient(&peer)
		default:
			r, why = p.Runs.Find(bridge.Client{}, &peer, "", true)
		}
	}
	if why != nil {
		return nil, p.noSession(why, &peer)
	}
	peer.Header, peer.ID = nil, "" // they are the first request's, and read
	s := p.newSession(&session{own: own, run: r, peer: peer})
	if why = p.Runs.Join(r, s); why != nil { // it has ended just now, or gone
		p.remove(s)
		return nil, p.noSession(why, &peer)
	}
	return s, nil
}

// noSession is why a client has no session, with what it can do.
func (p *Proxy) noSession(why *runs.Missing, peer *observe.Peer) error {
	if why.At != nil {
		return why
	}
	told := &runs.Missing{Code: why.Code, Text: why.Text + p.Runs.WayOn(why, bridge.Client{})}
	p.cfg.Log.Info("refused", peer.About([]any{"code", why.Code.String(), "method", "initialize", "reason", told.Text})...)
	return told
}

// Refuse begins a drain: nothing new is taken any more.
func (p *Proxy) Refuse() { p.drain.Begin() }

// Draining reports whether a drain has begun, by [Proxy.Refuse], [Proxy.Drain]
// or [Proxy.Close].
func (p *Proxy) Draining() bool { return p.drain.Begun.Load() }

// Drain lets what is under way come to its end. From now on a request is
// refused, pings and lists excepted; what was not sent yet, because it waits for the
// run's turn or for a connection, is answered so. What the upstream has got it
// may answer until ctx ends; then it is cancelled there, and its client told
// that the outcome is unknown. Cancellations, and answers to what the upstream
// asks, pass all the while. Sessions stay open: [Proxy.Close] ends them.
func (p *Proxy) Drain(ctx context.Context) drain.Drained { return p.drain.Run(ctx, p.underWay) }

// underWay returns the requests under way in all sessions.
func (p *Proxy) underWay() (all []*flight.Flight) {
	for _, s := range p.open() {
		for _, c := range s.underWay() {
			all = append(all, &c.flight)
		}
	}
	return all
}

// Close ends all sessions and waits until what they had under way is over,
// at most for the cancel grace. A session opened from then on has ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Runs.Close()
	p.drain.Begin()
	p.drain.StopLasting()
	p.drain.StopReading()
	for _, s := range p.open() {
		s.Close()
	}
	p.ending.Wait()
	p.uplinks.Close()
}
