package observe

import (
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Call is what is noted of a call for those who are told of it. It is written on the call's
// own way, and given back at its end. A call that nobody is told of has none: the methods of a
// nil Call do nothing.
type Call struct {
	Op Operation // what is known of it so far; that it was sent, and how long it took, is noted by Measure

	to       *Telemetry
	journal  Journal // of its records; nil: nowhere
	span     Span    // nil: it is not followed
	begun    time.Duration
	answered time.Duration // when the upstream had; 0: not
	since    time.Duration // when it began to wait
	waits    int
	decided  bool        // the decision is recorded
	recorded bool        // and so is what became of it
	number   uint64      // of the decision's record; 0: none
	shadow   policy.Code // why it would be refused, but for the shadow mode
}

// calls are those that are not used.
var calls = sync.Pool{New: func() any { return new(Call) }}

// Begin begins to note what is told of a request; session and header are as for
// [Tracer.Begin]. Nobody is told, where j is nil as well: then there is no Call.
func (t *Telemetry) Begin(j Journal, m *wire.Message, session string, header func(name string) string) *Call {
	if !t.wanted() && j == nil {
		return nil
	}
	c := calls.Get().(*Call)
	c.to, c.begun = t, deadline.Now()
	if t.Tracer != nil {
		c.span = t.Tracer.Begin(m, session, header)
	}
	return c
}

// Waiting notes that the call waits for something but the answer, until over is called.
func (c *Call) Waiting() (over func()) {
	if c == nil {
		return func() {}
	}
	if c.waits++; c.waits == 1 {
		c.since = deadline.Now()
	}
	return func() {
		if c.waits--; c.waits == 0 {
			c.Op.Waited += deadline.Now() - c.since
		}
	}
}

// Failed notes why the call failed; the first reason holds.
func (c *Call) Failed(f Fault) {
	if c != nil && c.Op.Fault == (Fault{}) {
		c.Op.Fault = f
	}
}

// ShadowRefused notes that the call would be refused, but for the shadow mode, and tells of it.
func (c *Call) ShadowRefused(why policy.Code) {
	if c != nil {
		c.shadow = why
		c.to.ShadowRefused(why)
	}
}

// Audited reports whether somebody is to be told, by Decide, of the decision on the call.
func (c *Call) Audited() bool {
	return c != nil && !c.decided && c.to.Auditor != nil
}

// Decide records that the call does not go upstream.
func (c *Call) Decide(d Decision) {
	c.decided = true
	c.to.Auditor.Decided(c.completed(d))
}

// Decided reports whether the decision on the call is recorded.
func (c *Call) Decided() bool { return c.decided }

// Sent records that the call goes upstream: in j, which is told what becomes of it, too.
func (c *Call) Sent(j Journal, d Decision) {
	c.decided, c.journal, c.number = true, j, j.Begin(c.completed(d))
}

func (c *Call) completed(d Decision) Decision {
	d.Fault, d.Shadow = c.Op.Fault, c.shadow
	return d
}

// Traced returns the request with the context of the trace in which it goes upstream.
func (c *Call) Traced(m *wire.Message) *wire.Message {
	if c == nil || c.span == nil {
		return m
	}
	return c.span.Send(m)
}

// Answered notes that the upstream's answer, or its loss, has come.
func (c *Call) Answered(m *wire.Message, err error) {
	if c == nil {
		return
	}
	c.answered = deadline.Now()
	if c.span != nil {
		c.span.Answered()
	}
	switch {
	case err != nil:
	case m.Kind == wire.Failure:
		c.Failed(Fault{RPC: m.ErrorCode})
	case m.R.IsError:
		c.Failed(Fault{Tool: true})
	}
}

// Settled notes the outcome.
func (c *Call) Settled(o policy.Outcome) {
	if c != nil {
		c.Op.Outcome = o
	}
}

// Stepped notes a step that changed the run's configuration.
func (c *Call) Stepped(from, to string) {
	if c != nil {
		c.Op.From, c.Op.To = from, to
	}
}

// Measure notes how long the call has taken until now, and of that, if it was sent, the
// upstream.
func (c *Call) Measure(sent time.Time) {
	c.Op.Total = deadline.Now() - c.begun
	if !sent.IsZero() {
		c.Op.Sent = true
		c.Op.Upstream = max(c.answered-deadline.Instant(sent), 0)
	}
}

// Record records, once, what became of a call that was sent.
func (c *Call) Record(of Peer) {
	if c.number != 0 && !c.recorded {
		c.recorded = true
		c.journal.End(c.number, of, &c.Op)
	}
}

// Recorded reports whether it is.
func (c *Call) Recorded() bool { return c.recorded }

// Remains returns what is left of a call whose outcome is still to be recorded, when it has
// been answered; nil: nothing.
func (c *Call) Remains() *Call {
	if c == nil || c.number == 0 {
		return nil
	}
	return &Call{to: c.to, journal: c.journal, begun: c.begun, number: c.number, decided: true}
}

// Ended records what became of a call that lasted longer than its request, at its end.
func (c *Call) Ended(of Peer) {
	c.Op.Sent = true
	c.Op.Total = deadline.Now() - c.begun
	c.Op.Upstream = c.Op.Total
	c.Record(of)
}

// End tells that the call has its answer, or will have none: ops measures it, unless that is
// nil. The Call is given back, and no longer the caller's.
func (c *Call) End(ops Operations) {
	if ops != nil {
		ops.Ended(&c.Op)
	}
	if c.span != nil {
		c.span.End(&c.Op)
	}
	*c = Call{}
	calls.Put(c)
}
