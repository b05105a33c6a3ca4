package proxy

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/asks"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/subscriptions"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// session is one client: its requests under way, its run, and its connection
// upstream.
type session struct {
	p     *Proxy
	run   *runs.Run
	link  *subscriptions.Uplink
	own   wire.Stream
	shown surface.Shown
	log   hclog.Logger
	timer deadline.Timer // of the deadlines of calls
	wants subscriptions.Wants
	peer  observe.Peer  // whose session it is
	began time.Duration // as deadline.Now
	runPeers
	kept surface.Kept
	asks asks.Open

	_  [64]byte   // what every call writes, from what every call only reads: a cache line apart
	mu sync.Mutex // guards what follows
	requests
}

// runPeers are those who send the requests of a run's session.
type runPeers struct {
	listeners *bridge.Listeners // their subscriptions/listen streams; nil in a client's session
	// Whose request came first, and whether another's has since. From then on what the upstream
	// says, without saying for which call, is nobody's.
	first atomic.Pointer[wire.Principal]
	mixed atomic.Bool
	ofRun bool // it is a run's: each of its requests says who sends it
}

// ownTools are tools that the proxy itself serves to a session, beside the upstream's.
// The upstream is told nothing of their calls, and no binding decides on them.
type ownTools interface {
	// List returns what is added to the list of tools in a snapshot of the session's run,
	// on a surface, for whoever asks; nil: nothing.
	List(at run.Snapshot, static bool, asks wire.Principal) *catalogue.Own
	// Call answers a call of one of them. It reports false for what is none, and does
	// nothing then.
	Call(c *call) (wire.Pending, bool)
}

// tools are those that the proxy serves to the session.
func (s *session) tools() ownTools { return s.toolsUnder(s.p.Runs.Policy(), s.run.Shadow()) }

// hasSignals reports whether the agent can send signals.
func (s *session) hasSignals() bool {
	_, ok := s.tools().(signals)
	return ok
}

// toolsUnder are tools under a policy in force.
func (s *session) toolsUnder(p *policy.Policy, shadow bool) ownTools {
	beside := s.otherTools()
	if p.HasSignals() && !shadow {
		return signals{beside, s}
	}
	return beside
}

// otherTools are those that hang on the run's key.
func (s *session) otherTools() ownTools {
	switch {
	case s.run.Key.Begins():
		return restarts{}
	case s.ofRun && s.p.handles != nil:
		return runTools{s.p.handles}
	}
	return noTools{}
}

// noTools are none.
type noTools struct{}

func (noTools) List(run.Snapshot, bool, wire.Principal) *catalogue.Own { return nil }
func (noTools) Call(*call) (wire.Pending, bool)                        { return nil, false }

// requests are those of the session's clients under way.
type requests struct {
	calls   map[string]*call
	runless int     // how many of them go upstream for no run
	lastKey int64   // of a run's session: the key given out last
	early   []*call // what came meanwhile, in order
	opening bool    // initialize is under way, or early not yet empty
	closed  bool
	goesOn  bool // closed since the proxy ends, or since it could not go on just now: it does when it is asked for again
}

// Where implements surface.Session.
func (s *session) Where() run.Snapshot { return s.run.Where().As(s.shown.Audience()) }

// Live implements surface.Session.
func (s *session) Live() *bridge.Upstream { return s.link.Live() }

// OwnTools implements surface.Session. A snapshot of before a reload, or a change of mode, has those of then.
func (s *session) OwnTools(at run.Snapshot, static bool, asks wire.Principal) *catalogue.Own {
	return s.toolsUnder(at.InForce(), at.Shadow).List(at, static, asks)
}

// Own implements surface.Session.
func (s *session) Own() wire.Stream { return s.own }

// Changed implements runs.Member.
func (s *session) Changed(moved run.Shifts) { s.shown.Moved(moved) }

// Client implements runs.Member.
func (s *session) Client() bool { return !s.ofRun }

// Busy implements runs.Member.
func (s *session) Busy() bool { return s.inFlight() > s.listeners.Len() }

// Resumed tells the client that its lists may be others than those that it has seen.
func (s *session) Resumed() { s.shown.AllChanged() }

// About implements surface.Session.
func (s *session) About(pairs ...any) []any { return s.peer.About(pairs) }

// Version is the negotiated protocol revision.
func (s *session) Version() string {
	if h := s.shown.Hello.Load(); h != nil {
		return h.Version
	}
	return ""
}

// Listen lets go out what waited for a listener.
func (s *session) Listen() { s.shown.Changed.Flush() }

// Handle takes one message of the client.
func (s *session) Handle(m *wire.Message, out wire.Stream) wire.Pending {
	switch m.Kind {
	case wire.Request:
		return s.request(m, out)
	case wire.Notification:
		s.notification(m)
	default:
		s.asks.Answered(&s.p.asks, m)
	}
	return nil
}

// waiting is the rest of a request that waits for initialize: what lies beyond
// belongs to the goroutine that runs [session.opened].
type waiting struct{ c *call }

func (w waiting) Wait()              { w.c.flight.Over(context.Background()) }
func (w waiting) Detach(func()) bool { return false }

// wait makes a request that comes while initialize is under way wait for that,
// in order. It reports false where there is nothing to wait for.
func (s *session) wait(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opening || s.closed {
		return false
	}
	s.early = append(s.early, c)
	return true
}

// opened lets those requests go on.
func (s *session) opened() {
	for {
		s.mu.Lock()
		early := s.early
		s.early, s.opening = nil, len(early) > 0
		s.mu.Unlock()
		if len(early) == 0 {
			return
		}
		for _, c := range early {
			if rest := c.routed(); rest != nil {
				go rest.Wait()
			}
		}
	}
}

// before answers a request that comes before initialize. A client that opens
// with a newer protocol's discovery is told that there is no such method, and
// falls back to initialize. One whose initialize a drain has refused is too late as well.
func (c *call) before() wire.Pending {
	if c.s.p.drain.Begun.Load() {
		return c.tooLate()
	}
	if _, known := c.s.p.routes.of[bridge.Client{}.Index()][c.m.Method]; known {
		return c.fail(wire.CodeInvalidRequest, "the session is not initialized: send initialize first")
	}
	return c.fail(wire.CodeMethodNotFound, c.unknownMethod())
}

// admit enters a request among those under way; else it says why not.
func (s *session) admit(c *call) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.key == "" { // no id tells the requests of a run apart: they come from any number of clients
		s.lastKey++
		c.key = strconv.FormatInt(s.lastKey, 36)
	}
	if s.calls[c.key] != nil {
		return "a request with this id is still under way"
	}
	if s.crowdedLocked(c) {
		return "too many requests under way in this session: wait for answers"
	}
	switch {
	case s.closed && s.p.drain.Begun.Load():
		return refusal.TooLate
	case s.closed && s.goesOn:
		return "the session goes on elsewhere, or later, and this request was not sent: try again"
	case s.closed:
		return "the session has ended, and this request was not sent: begin another session with initialize"
	}
	if s.calls == nil {
		s.calls = make(map[string]*call)
	}
	c.flight.Grace = s.p.cfg.CancelGrace
	s.calls[c.key] = c
	if c.runless() {
		s.requests.runless++
	}
	return ""
}

// crowdedLocked reports whether there are too many requests under way for one more.
// Where requests without a run go, whose number the framing bounds, their calls are
// counted alone: they keep nobody from listing, listening and starting a run. In the
// session of a run each principal has its own room, and what only listens takes none
// from what does not.
func (s *session) crowdedLocked(c *call) bool {
	if s.run.ForRunless {
		return c.runless() && s.requests.runless >= s.p.cfg.MaxInFlight
	}
	if len(s.calls) < s.p.cfg.MaxInFlight || !s.ofRun {
		return len(s.calls) >= s.p.cfg.MaxInFlight
	}
	n, listens := 0, c.m.Method == "subscriptions/listen"
	for _, other := range s.calls {
		if other.from.Principal == c.from.Principal && (other.m.Method == "subscriptions/listen") == listens {
			n++
		}
	}
	return n >= s.p.cfg.MaxInFlight
}

// runless reports whether the call goes upstream for no run.
func (c *call) runless() bool { return c.s.run.ForRunless && c.steps() && !c.own }

// forget takes an answered request out of those under way.
func (s *session) forget(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[c.key] != c {
		return
	}
	delete(s.calls, c.key)
	if c.runless() {
		s.requests.runless--
	}
}

// underWay returns the requests under way.
func (s *session) underWay() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*call, 0, len(s.calls))
	for _, c := range s.calls {
		all = append(all, c)
	}
	return all
}

// inFlight is how many there are.
func (s *session) inFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// expire gives up the calls whose time has run out.
func (s *session) expire() {
	now := time.Now()
	for _, c := range s.underWay() {
		switch out, at := c.flight.Deadline.Expire(now); {
		case out:
			c.expire()
		case !at.IsZero():
			s.timer.Set(at)
		}
	}
}

// notification takes a notification of the client.
func (s *session) notification(m *wire.Message) {
	switch m.Method {
	case "notifications/initialized":
		s.link.Initialized(m.Raw)
	case "notifications/cancelled":
		s.cancel(m)
	case "notifications/progress":
		s.asks.Progress(m)
	case "notifications/roots/list_changed":
		if !s.link.Shared() && s.run.Where().UpstreamMay().Roots {
			s.forward(m.Raw)
		}
	default:
		// A server may run a request that has no id: passthrough names none that the proxy routes.
		if s.run.Shadow() || s.policyNow().Passthrough(m.Method) {
			s.forward(m.Raw)
		}
	}
}

// forward sends a notification upstream, if there is a connection.
func (s *session) forward(raw []byte) {
	if conn := s.link.Live(); conn != nil {
		if err := conn.Notify(raw); err != nil {
			s.log.Debug("sending a notification upstream", "error", err)
		}
	}
}

func (s *session) cancel(m *wire.Message) {
	key := wire.Key(m.Bytes(m.P.RequestID))
	s.mu.Lock()
	c := s.calls[key]
	s.mu.Unlock()
	if c != nil && c.m.Method != "initialize" {
		c.flight.Cancel(m.Bytes(m.Params))
	}
}

// Close ends the session: what is under way is cancelled, and what the upstream
// still answers within the grace decides.
func (s *session) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed, s.goesOn = true, s.p.drain.Begun.Load() || s.Moved() || s.peer.Resumed && s.shown.Hello.Load() == nil
	s.p.ending.Add(1) // before anybody can find it closed, and wait
	s.mu.Unlock()
	go s.end()
}

// end is owned by the Proxy, which waits for it in Close.
func (s *session) end() {
	defer s.p.ending.Done()
	for _, c := range s.underWay() {
		c.flight.CallOff(s.Moved())
	}
	s.asks.Close(&s.p.asks)
	ctx, stop := context.WithTimeout(context.Background(), s.p.cfg.EndGrace)
	defer stop()
	for _, c := range s.underWay() {
		c.flight.Over(ctx)
	}
	if s.inFlight() == 0 {
		s.timer.Stop()
	}
	switch {
	case s.run.Key.Kind == runs.Session || s.ofRun: // which ends with it
		s.run.Tasks.End(s.goesOn)
	case s.peer.Session == "": // it is the only client's, with whom the proxy ends: what is kept goes on when it is started anew
		s.p.drain.StopLasting()
	}
	s.link.Leave(s)
	s.p.keeps.Drop(&s.kept)
	s.p.remove(s)
	s.measured()
}

// policyNow is the policy in force, whose settings hold for the session.
func (s *session) policyNow() *policy.Policy { return s.run.Where().InForce() }

// operations is where the session's operations are measured, nil for nowhere.
func (s *session) operations() observe.Operations {
	if h := s.shown.Hello.Load(); h != nil {
		return h.Operations
	}
	return s.p.operations
}

// measured tells that the session has ended, if it ever began.
func (s *session) measured() {
	h, m := s.shown.Hello.Load(), s.p.cfg.Telemetry.Meter
	if h != nil && m != nil {
		m.SessionEnded(h.Version, deadline.Now()-h.Begun)
	}
}

// Over reports whether the session's run has ended under it: its client has to begin another.
func (s *session) Over() bool { return s.run.Ended() }

// Moved reports whether the session goes on in another process, with its run.
func (s *session) Moved() bool { return s.run.Lost() }

// moves has a request of which nothing was done be served where its run is, and reports whether that can be: where this
// process may not act for the run, which may be known to go on elsewhere soon.
func (s *session) moves(out wire.Stream) bool {
	return !s.run.Acts() && wire.MoveOn(out, runs.LookAgain(false))
}

// Unreadable implements wire.WitnessSession.
func (s *session) Unreadable(err error) {
	fault := observe.Fault{RPC: wire.CodeParse}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		fault.RPC = e.Code
	}
	s.log.Info("refused: the message cannot be read as one; the client was told why", s.About("code", fault.RPC)...)
	a := s.p.cfg.Telemetry.Auditor
	if a == nil {
		return
	}
	s.p.awaitRoom()
	a.Decided(observe.Decision{Peer: s.peer, Fault: fault})
}

// awaitRoom waits until something can be recorded, or the proxy is ending.
func (p *Proxy) awaitRoom() {
	if a := p.cfg.Telemetry.Auditor; a != nil {
		a.Await(p.drain.Taking)
	}
}

// tasked reports whether the upstream offers tasks that the client can follow.
func (s *session) tasked(by bridge.Client) bool {
	h := s.shown.Hello.Load()
	conn := s.link.Live()
	return h.Tasks && (conn == nil || by.Follows(conn.Server))
}
