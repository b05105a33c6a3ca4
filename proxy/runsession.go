package proxy

import (
	"context"
	"strconv"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// A run has a session for stateless requests: all that find the run go through it, whoever
// sends them, over one
// connection upstream. It has no stream of its own but those that listen.

// newServer makes the session of a run's stateless requests.
func (p *Proxy) newServer(r *runs.Run) *session {
	all := &bridge.Listeners{}
	return p.newSession(&session{own: all, runPeers: runPeers{ofRun: true, listeners: all}, run: r})
}

// onceOpen has a request go its way once its run's session knows what the upstream offers.
func (c *call) onceOpen() wire.Pending {
	if c.s.hello.Load() != nil {
		return c.levelled()
	}
	c.s.run.Expect(c)
	return c.later(c.openRun)
}

func (c *call) openRun() {
	over := c.seen.Waiting()
	conn, err := c.s.openFor(c.m)
	over()
	if err != nil {
		c.seen.Failed(observe.Fault{Code: policy.UpstreamUnavailable})
		if err == link.ErrEnding {
			wait(c.tooLate())
			return
		}
		c.fail(wire.CodeInternal, "The upstream server is not available: "+err.Error()+". Nothing was done; try again later.")
		return
	}
	c.s.knows(conn.Hello())
	wait(c.levelled())
}

// levelTimeout bounds how long a call waits for the upstream to take its log level.
const levelTimeout = 5 * time.Second

// levelled has a stateless request go its way once an upstream with sessions logs
// at the level that the request asks for. A run's session raises its connection's level and
// never lowers it: what a request has not asked for is kept from it.
func (c *call) levelled() wire.Pending {
	if bridge.LogLevel(c.m) == "" || !c.s.hello.Load().Logs || !c.s.wants.Raise(bridge.LogLevel(c.m)) {
		return c.routed()
	}
	return c.later(func() {
		c.tellLevel()
		wait(c.routed())
	})
}

// tellLevel sets the session's level upstream, where another session over the same
// connection has not set it already. That it fails keeps no call from being made.
func (c *call) tellLevel() {
	level := c.s.wants.Level()
	if c.s.link.Covered(c.s, level.P.Level) {
		return
	}
	over := c.seen.Waiting()
	defer over()
	conn, err := c.s.link.Get()
	if err != nil {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), levelTimeout)
	defer stop()
	if _, err := conn.Start(level, nil).Wait(ctx); err != nil {
		c.s.log.Warn("setting the upstream's log level: its messages may be missing; the next connection is asked again", "error", err)
	}
}

// openFor opens the session's connection, with the introduction of the client whose
// request is the first.
func (s *session) openFor(m *wire.Message) (*bridge.Upstream, error) {
	return s.link.OpenFor(s, s.p.openingFor(m))
}

// openingFor introduces a stateless client to the upstream, in either way.
// What the upstream may ask does not hang on the client of the first request:
// lists must not either. Who introduces itself at length goes by the proxy's name, since
// the run keeps it.
func (p *Proxy) openingFor(m *wire.Message) bridge.Opening {
	info := p.clientInfo()
	if given := bridge.IntroductionIn(m).Info; given != nil && len(given) <= 4<<10 {
		info = given
	}
	capabilities := bridge.Askable(hides(p.Runs.Beginning().UpstreamMay()))
	return bridge.Stateless.Opening(bridge.Introduction{Capabilities: capabilities, Info: info})
}

// sharedOpening introduces the proxy in either way to an upstream that all share. With a
// session is preferred: in it sampling and the like need no retries.
func (p *Proxy) sharedOpening() bridge.Opening {
	may := p.Runs.Beginning().UpstreamMay()
	if !p.cfg.Streams {
		may = policy.UpstreamMay{}
	}
	capabilities := wire.Pick(bridge.Askable(hides(may)), func(string, []byte) []byte { return []byte("{}") })
	return bridge.Client{}.Opening(bridge.Introduction{Capabilities: capabilities, Info: p.clientInfo()})
}

// clientInfo is what the proxy calls itself towards upstreams.
func (p *Proxy) clientInfo() []byte {
	return append(wire.AppendString([]byte(`{"name":"fsm-proxy","version":`), p.cfg.Version), '}')
}

// knows settles what the upstream offers, once.
func (s *session) knows(m *wire.Message) {
	h := &hello{version: bridge.Revision, from: m, may: policy.UpstreamMay{Sampling: true, Elicitation: true, Roots: true},
		static: s.p.cfg.Surface != surface.Dynamic}
	h.annotate = s.p.annotateOn(h.static)
	h.server = m.ServerInfo()
	h.Offered = bridge.Stateless.Offered(wire.Member(m.Bytes(m.Result), "capabilities"))
	h.operations, h.begun = s.p.cfg.Telemetry.Operations(h.version), deadline.Now()
	s.hello.CompareAndSwap(nil, h)
}

// annotateOn is what is added to results, on a surface: by default nothing that opaque
// refusals keep to themselves.
func (p *Proxy) annotateOn(static bool) surface.Annotate {
	switch {
	case p.cfg.Annotate != surface.AnnotateAuto:
		return p.cfg.Annotate
	case static && p.cfg.Refusals != RefusalsOpaque:
		return surface.AnnotateText
	}
	return surface.AnnotateOff
}

// freshList is for how many milliseconds a client may keep a list: on the static
// surface they change when the policy or the upstream's own lists do, which are
// read again after as long; on the dynamic one with every step.
func (s *session) freshList() string {
	if s.static() {
		return strconv.Itoa(int(listTTL / time.Millisecond))
	}
	return "0"
}

const listTTL = 30 * time.Second

// sessionFor finds the session of a request's run. A request that needs none, and has
// none, goes to the catalogue; so does one that is answered with why it has no run.
func (p *Proxy) sessionFor(c *call) (*session, *runs.Missing) {
	var r *runs.Run
	why := p.Runs.Beside(bridge.Stateless, &c.from)
	if why != nil {
		return p.nobodys(), why
	}
	if r = c.byTask(p); r == nil && !c.own {
		r, why = p.Runs.Find(bridge.Stateless, &c.from, c.handle, c.steps() || c.m.Method == "subscriptions/listen")
	}
	switch {
	case r == nil && p.handles != nil && p.Runs.Shadow():
		c.m = c.asSent()
		return p.nobodys(), nil
	case r == nil && why == runs.ErrNotFound && !c.steps() && p.Runs.Key(bridge.Stateless).Begins():
		return p.nobodys(), nil
	case r == nil:
		return p.nobodys(), why
	}
	m := r.Server()
	if m == nil {
		m = p.Runs.Serve(r, func() runs.Member { return p.newServer(r) })
	}
	if m == nil { // it has ended just now
		return p.nobodys(), runs.ErrNotFound
	}
	return m.(*session), nil
}
