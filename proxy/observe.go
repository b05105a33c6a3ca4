package proxy

import (
	"errors"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// observation is what is noted of a call for those that are told of it. It is written on
// the call's own way, and given back at its end. A call that nobody is told of has
// none: all methods below do nothing then.
type observation struct {
	span     Span // nil: it is not followed
	begun    time.Duration
	answered time.Duration // when the upstream had; 0: not
	since    time.Duration // when it began to wait
	waits    int
	decided  bool        // the decision is recorded
	recorded bool        // and so is what became of it
	number   uint64      // of the decision's record; 0: none
	shadow   policy.Code // why it would be refused, but for the shadow mode
	op       Operation   // what is known of it so far
}

// observations are those that no call has.
var observations = sync.Pool{New: func() any { return new(observation) }}

// observe begins to note what is told of a call.
func (c *call) observe() {
	t := &c.s.p.cfg.Telemetry
	if !t.wanted() && c.s.p.cfg.Journal == nil {
		return
	}
	c.seen = observations.Get().(*observation)
	c.seen.begun = deadline.Now()
	if t.Tracer != nil {
		c.seen.span = t.Tracer.Begin(c.m, c.who().Session, c.header())
	}
}

// header returns what reads the headers that the call came with, nil for none.
func (c *call) header() func(string) string {
	if out, ok := c.out.(wire.HeadedStream); ok {
		return out.Header
	}
	return nil
}

// waiting is to be called before the call waits for anything but the answer, and
// what it returns after that.
func (c *call) waiting() (over func()) {
	s := c.seen
	if s == nil {
		return func() {}
	}
	if s.waits++; s.waits == 1 {
		s.since = deadline.Now()
	}
	return func() {
		if s.waits--; s.waits == 0 {
			s.op.Waited += deadline.Now() - s.since
		}
	}
}

// fault notes why the call failed; the first reason holds.
func (c *call) fault(f Fault) {
	if c.seen != nil && c.seen.op.Fault == (Fault{}) {
		c.seen.op.Fault = f
	}
}

// deny notes that the call is refused, or will come to nothing, and why.
func (c *call) deny(code policy.Code) {
	c.fault(Fault{Code: code})
	c.decide()
}

// shadowRefused notes that the call would be refused, but for the shadow mode.
func (c *call) shadowRefused(code policy.Code) {
	if c.seen != nil {
		c.seen.shadow = code
	}
	c.s.p.cfg.Telemetry.shadowRefused(code)
}

// decide records the decision on a call that does not go upstream, once.
func (c *call) decide() {
	s, a := c.seen, c.s.p.cfg.Telemetry.Auditor
	if s == nil || a == nil || s.decided {
		return
	}
	s.decided = true
	if c.m.Method != "ping" {
		a.Decided(c.decision())
	}
}

// journal is where it is recorded that the call went upstream, and what became of it; nil:
// nowhere. What steps no run is no entry of one, but has its lines in the audit.
func (c *call) journal() Journal {
	if c.gated {
		return c.s.p.cfg.Journal
	}
	if a := c.s.p.cfg.Telemetry.Auditor; a != nil {
		return a
	}
	return nil
}

// begin records, once, that the call goes upstream.
func (c *call) begin() {
	if j := c.journal(); j != nil && !c.seen.decided {
		c.seen.decided, c.seen.number = true, j.Begin(c.decision())
	}
}

// record records what became of a call that was sent and has an outcome, or why it has none.
func (c *call) record(lost error, o policy.Outcome) {
	if c.seen == nil || o == noOutcome || c.seen.recorded {
		return
	}
	if lost != nil && c.isCancelled() {
		c.fault(Fault{Cancelled: true})
	} else if lost != nil {
		c.fault(Fault{Code: policy.OutcomeUnknown})
	}
	c.end(c.operation())
}

func (c *call) end(op *Operation) {
	if s := c.seen; s.number != 0 && !s.recorded {
		s.recorded = true
		c.journal().End(s.number, c.who(), op)
	}
}

func (c *call) decision() Decision {
	d := Decision{Peer: c.who(), Message: c.m, Named: c.named(), Kind: c.Kind, Name: c.Name, Fault: c.seen.op.Fault, Shadow: c.seen.shadow,
		Rule: c.Verdict.Rule, Case: c.Verdict.Symbol.Case}
	at := c.Snapshot
	if at.Policy == nil {
		at = c.s.run.where()
	}
	d.Policy = at.Policy
	if d.Named {
		d.State = at.State()
	}
	return d
}

// named reports whether the call is about a name.
func (c *call) named() bool { return c.gated || c.Name != "" }

// traced is the request with the context of the trace in which it goes upstream.
func (c *call) traced() *wire.Message {
	if c.seen == nil || c.seen.span == nil {
		return c.m
	}
	return c.seen.span.Send(c.m)
}

// landing notes that the upstream's answer, or its loss, has come.
func (c *call) landing(m *wire.Message, err error) {
	s := c.seen
	if s == nil {
		return
	}
	s.answered = deadline.Now()
	if s.span != nil {
		s.span.Answered()
	}
	switch {
	case err != nil:
	case m.Kind == wire.Failure:
		c.fault(Fault{RPC: m.ErrorCode})
	case m.R.IsError:
		c.fault(Fault{Tool: true})
	}
}

// stepped tells of a step that changed the run's configuration.
func (c *call) stepped(from, to string, o policy.Outcome) {
	if c.seen != nil { // the call of a task is over
		c.seen.op.From, c.seen.op.To = from, to
	}
	if m := c.s.p.cfg.Telemetry.Meter; m != nil {
		m.Stepped(from, to, o)
	}
}

// observeEnd tells of the call's end.
func (c *call) observeEnd() {
	s := c.seen
	if s == nil {
		return
	}
	c.decide()
	op := c.operation()
	c.end(op)
	if ops := c.s.operations(); ops != nil {
		ops.Ended(op)
	}
	if s.span != nil {
		s.span.End(op)
	}
	c.seen = nil
	*s = observation{}
	observations.Put(s)
}

// operation completes what is known of the call.
func (c *call) operation() *Operation {
	op := &c.seen.op
	op.Message, op.Version = c.m, c.s.Version()
	op.Named, op.Kind, op.Name = c.named(), c.Kind, c.Name
	op.Familiar = op.Named && c.familiar()
	op.Total = deadline.Now() - c.seen.begun
	if sent := c.deadline.Started(); !sent.IsZero() {
		op.Sent = true
		op.Upstream = max(c.seen.answered-deadline.Instant(sent), 0)
	}
	return op
}

// familiar reports whether the call's name is one of those that the upstream
// lists or the policy binds exactly.
func (c *call) familiar() bool {
	if c.Known && c.Listed || c.Verdict.Allowed && !c.Verdict.ByGlob {
		return true
	}
	p := c.s.policyNow()
	return p != nil && p.BoundAnywhere(c.Kind, c.Name, false)
}

// operations is where the session's operations are measured, nil for nowhere.
func (s *session) operations() Operations {
	if h := s.hello.Load(); h != nil {
		return h.operations
	}
	return s.p.operations
}

// measured tells that the session has ended, if it ever began.
func (s *session) measured() {
	h, m := s.hello.Load(), s.p.cfg.Telemetry.Meter
	if h != nil && m != nil {
		m.SessionEnded(h.version, deadline.Now()-h.begun)
	}
}

// turnedAway tells of a request that is not even taken. What is refused in any
// number has to wait until it can be recorded.
func (c *call) turnedAway() {
	c.s.p.awaitRoom()
	c.fault(Fault{RPC: wire.CodeInvalidRequest})
	c.observeEnd()
}

// Unreadable implements wire.WitnessSession.
func (s *session) Unreadable(err error) {
	fault := Fault{RPC: wire.CodeParse}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		fault.RPC = e.Code
	}
	s.log.Info("refused: the message cannot be read as one; the client was told why", s.about("code", fault.RPC)...)
	a := s.p.cfg.Telemetry.Auditor
	if a == nil {
		return
	}
	s.p.awaitRoom()
	a.Decided(Decision{Peer: s.peer, Fault: fault})
}

// awaitRoom waits until something can be recorded, or the proxy is ending.
func (p *Proxy) awaitRoom() {
	if a := p.cfg.Telemetry.Auditor; a != nil {
		a.Await(p.drain.taking)
	}
}

// crowdsOut reports whether the call has to wait until it can be recorded. What
// opens a session does not, so that what comes behind it finds that under way.
func (c *call) crowdsOut() bool {
	a := c.s.p.cfg.Telemetry.Auditor
	if a == nil || c.m.Method == "ping" || a.Room() {
		return false
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.m.Method != "initialize" || c.s.opening || c.s.hello.Load() != nil
}

// whenRoom lets the call go on when it can be recorded.
func (c *call) whenRoom() {
	over := c.waiting()
	c.s.p.awaitRoom()
	over()
	if c.s.p.drain.begun.Load() {
		c.tooLate()
		return
	}
	wait(c.onward())
}

// onward sends a call its way that can be recorded.
func (c *call) onward() wire.Pending {
	switch {
	case c.own:
		return c.routed()
	case c.client.Stateless() && c.m.Method == "server/discover" && c.s.p.refusesDiscover():
		return c.refuseDiscover()
	case c.client.Stateless():
		return c.onceOpen()
	}
	return c.routed()
}
