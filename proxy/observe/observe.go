// Package observe is who is told what a proxy decides and does, and what is noted of one call
// for them. Package internal/telemetry has those who are told.
package observe

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Telemetry is who is told what a proxy decides and does. Each may be nil, and
// costs nothing then. All but [Auditor.Entered] are told outside of any lock, on the way of a message:
// none but [Auditor.Await] may block. Package internal/telemetry has them.
type Telemetry struct {
	Meter   Meter   // counts and measures
	Tracer  Tracer  // follows single operations
	Auditor Auditor // records every decision
}

// Meter measures. It is safe for concurrent use.
type Meter interface {
	// Operations is where the operations of sessions of a protocol revision are
	// measured. It is asked for once a session, and with "" for those that have
	// none yet.
	Operations(version string) Operations
	// Stepped tells that an outcome changed a run's configuration.
	Stepped(from, to, outcome string)
	// ShadowRefused tells of what would have been refused, but for the shadow mode.
	ShadowRefused(why policy.Code)
	// DefinitionChanged tells of something in which a tool that the policy binds is
	// not what was locked: once for each difference, where the policy's pin is not off.
	DefinitionChanged(change lock.Change)
	// SessionEnded tells how long a client's session lasted from initialize on,
	// ConnectionEnded how long a connection to the upstream lasted.
	SessionEnded(version string, lasted time.Duration)
	ConnectionEnded(lasted time.Duration)
	// RunsExpired tells how many runs have expired, RunRefused that one was not begun
	// since there are too many: "all" of them, of one "principal", or those that are "stored".
	RunsExpired(n int)
	RunRefused(reason string)
	// Reconnected tells that a lost connection to the upstream was made anew.
	Reconnected()
}

// Operations measures the operations of sessions of one revision. It is safe for
// concurrent use, and must be quick.
type Operations interface {
	Ended(op *Operation)
}

// Tracer follows operations. It is safe for concurrent use.
type Tracer interface {
	// Begin is told of a request that has come. session is the session's name in
	// the log, "" where there is one only; header returns a header of the HTTP
	// request that it came in, nil where it came otherwise.
	Begin(m *wire.Message, session string, header func(name string) string) Span
}

// Span is one operation that is followed.
type Span interface {
	// Send returns the request as it goes upstream: m, or m with the trace's
	// context in its _meta.
	Send(m *wire.Message) *wire.Message
	// Answered tells that the upstream has answered, or that no answer will come.
	Answered()
	// End is called once, last.
	End(op *Operation)
}

// Journal records what calls make of their runs. It is safe for concurrent use, and nothing
// of it blocks: who is told of a Begin has the room for its End.
type Journal interface {
	// Begin records that a request goes upstream, before it does, and returns the number under
	// which End tells what became of it: before anybody else learns of that.
	Begin(d Decision) (number uint64)
	End(number uint64, of Peer, op *Operation)
}

// Auditor records decisions. It is a [Journal] for requests of no run, too. It is safe for
// concurrent use.
type Auditor interface {
	Journal
	// Room reports whether there is room for another request's records. Else the
	// request waits, undecided, in Await, until there is or ctx ends.
	Room() bool
	Await(ctx context.Context)
	// Decided records a decision by which a request does not go upstream, before anything comes
	// of it. It does not block: what was let in is recorded.
	Decided(d Decision)
	// Entered records what has become of a run where no decision, and no end, of a request tells of it. It does not block:
	// it is called under the run's lock, and on the way of what is kept.
	Entered(e Entry)
}

// Entry is what has become of a run, as its entry has it.
type Entry struct {
	Verb     string         // what an operator has had be done, such as "reset"; "": nobody has
	Peer     Peer           // the operator
	Note     string         // why; of an annotation, what
	Type     string         // of the entry, such as "expired"
	Run      string         // what the store calls the run, or else its name
	Seq      uint64         // the number of the entry; 0: it is not kept
	From, To string         // the state that the run stood in, and where it stands since; "": there
	Policy   *policy.Policy // by which it stands there
	Rule     policy.Rule    // that moved it, or by which the call was decided; zero: there is none

	Parent string // of a fork, the run that it was forked of
	Fork   uint64 // and the number of the entry at which

	Begun   uint64 // the number of the entry by which the call began that the entry is of; 0: there is none
	Named   bool   // it is of a call: of Name, of Kind
	Kind    policy.Kind
	Name    string
	Outcome string // of the call; "": it has none
}

// Decision is what was decided on one request.
type Decision struct {
	Peer    Peer
	Message *wire.Message // the request
	// Named tells that it was about Name, of Kind.
	Named bool
	Kind  policy.Kind
	Name  string
	// State is where the run stood, "" where that played no part, and Policy what
	// decided.
	State  string
	Policy *policy.Policy
	Rule   policy.Rule // the zero Rule where none decided
	Case   string      // that the splitting argument selected
	Note   string      // that came with a signal, or an approval
	// Approval is the id of an approval that an operator has answered, and Said what: allow, or deny; "": it is none.
	Approval, Said string
	Run            string // what the store calls the run, or the name of one that an operator names; "": neither
	Seq            uint64 // the number of the run's entry that tells of it; 0: none does
	// Fault says why not. The zero Fault: it was allowed.
	Fault Fault
	// Shadow says why it would not have been allowed, but for the shadow mode;
	// CodeNone: it would have been.
	Shadow policy.Code
}

// Escaped is a note for the log. It has no quotes: that which a logger puts before one would be escaped
// by the backslash that is there.
func Escaped(note string) string {
	quoted := strconv.Quote(note)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `\x22`)
}

// Operation is one request of a client that has an answer, or that will have none.
// Whoever is told of it must not keep it.
type Operation struct {
	Message *wire.Message // the request
	Version string        // the session's protocol revision, "" before it has one
	// Named tells that it was about Name, of Kind. Familiar tells that the
	// upstream lists the name, or the policy binds exactly it: such names are few.
	Named, Familiar bool
	Kind            policy.Kind
	Name            string

	Fault    Fault
	Outcome  string // its name; "": none
	From, To string // the states of a step, "" where there was none
	Run      string // what the store calls the run; "": it is not kept
	Seq      uint64 // the number of its last entry that tells of it; 0: none does

	Total    time.Duration // from its arrival to its answer
	Sent     bool          // it went upstream
	Upstream time.Duration // of which: until the upstream answered
	Waited   time.Duration // of which: for the turn, a connection, or a list
}

// Fault is why an operation failed. The zero Fault: it has not.
type Fault struct {
	Code      policy.Code // of a refusal, or of what has no answer
	RPC       int         // the JSON-RPC error that was answered, whoever made it
	Tool      bool        // the tool's own: a result with isError
	Cancelled bool        // by the client: there is no answer
	Untaken   string      // why a signal of an operator's was not taken, in a word
}

// String is the fault in a word: a code of the policy's, the number of a JSON-RPC
// error, tool_error, cancelled, or why a signal was not taken; "" for none.
func (f Fault) String() string {
	switch {
	case f.Code != policy.CodeNone:
		return f.Code.String()
	case f.RPC != 0:
		return strconv.Itoa(f.RPC)
	case f.Tool:
		return "tool_error"
	case f.Cancelled:
		return "cancelled"
	case f.Untaken != "":
		return f.Untaken
	}
	return ""
}

// Refusal reports whether nothing was done, for a reason that has a code.
func (f Fault) Refusal() bool { return f.Code != policy.CodeNone && f.Code != policy.OutcomeUnknown }

// Operations is [Meter.Operations], nil without a Meter.
func (t *Telemetry) Operations(version string) Operations {
	if t.Meter == nil {
		return nil
	}
	return t.Meter.Operations(version)
}

// wanted reports whether anybody is told of operations.
func (t *Telemetry) wanted() bool { return t.Meter != nil || t.Tracer != nil || t.Auditor != nil }

// ShadowRefused is [Meter.ShadowRefused], for no Meter as well.
func (t *Telemetry) ShadowRefused(why policy.Code) {
	if t.Meter != nil {
		t.Meter.ShadowRefused(why)
	}
}

// DefinitionChanged is [Meter.DefinitionChanged], for no Meter as well.
func (t *Telemetry) DefinitionChanged(change lock.Change) {
	if t.Meter != nil {
		t.Meter.DefinitionChanged(change)
	}
}

// Peer tells the log which of several clients a session belongs to.
type Peer struct {
	Session string // the session's name; no secret
	ID      string // the session's id, a secret, where it is to be kept; "" after it was found, and where there is none
	Resumed bool   // the session was there before the proxy was started anew
	Remote  string // the client's address
	// Principal is who is asking.
	Principal wire.Principal
	// Run is the run that the URL's path names, "" for none.
	Run string
	// Header returns the values of a header of the request, by its canonical name.
	// Nil: there are none. Trusted tells that they come from a gateway that may say
	// which run it is.
	Header  func(name string) []string
	Trusted bool
}

// About puts who it is before what a line of the log says.
func (p *Peer) About(pairs []any) []any {
	if p.Principal.Known() {
		pairs = append([]any{"subject", p.Principal.Subject}, pairs...)
	}
	if p.Session != "" {
		pairs = append([]any{"session", p.Session}, pairs...)
	}
	return pairs
}

// Journal is where it is recorded what becomes of requests of no run; nil: nowhere.
func (t *Telemetry) Journal() Journal {
	if t.Auditor == nil {
		return nil
	}
	return t.Auditor
}

// Stepped is [Meter.Stepped], for no Meter as well.
func (t *Telemetry) Stepped(from, to, outcome string) {
	if t.Meter != nil {
		t.Meter.Stepped(from, to, outcome)
	}
}

// Call is what is noted of a call for those who are told of it. It is written on the call's
// own way, and given back at its end. A call that nobody is told of has none, a nil Call: what
// notes does nothing then, but what records and ends is for a Call alone. Not safe for concurrent use.
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

// Begin begins to note what is told of a request that came on a stream; session is as for
// [Tracer.Begin]. Where nobody is told, and j is nil, there is no Call.
func (t *Telemetry) Begin(j Journal, m *wire.Message, session string, out wire.Stream) *Call {
	if !t.wanted() && j == nil {
		return nil
	}
	c := calls.Get().(*Call)
	c.to, c.begun = t, deadline.Now()
	if t.Tracer != nil {
		var header func(string) string
		if headed, ok := out.(wire.HeadedStream); ok {
			header = headed.Header
		}
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
func (c *Call) Settled(outcome string) {
	if c != nil {
		c.Op.Outcome = outcome
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
