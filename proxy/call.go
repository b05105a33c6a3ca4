package proxy

import (
	"cmp"
	"errors"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/flight"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/outcome"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// call is one request of a client under way: gated (tools/call, resources/read,
// prompts/get: its outcome steps the run) or merely relayed.
type call struct {
	s   *session
	m   *wire.Message
	key string // of the request's id
	out wire.Stream
	*stateless

	// What was decided.
	run.Call
	definition
	own bool // it is of a tool of the proxy's, by which clients come by handles

	note       string // of a signal, for the record
	restarted  bool   // its outcome completed the run, which began anew
	gated      bool
	subscribes bool // it has entered a subscription
	client     bridge.Client
	server     bridge.Server    // of the connection that it was sent on
	conn       *bridge.Upstream // that connection
	resent     resending

	next   func()                     // the rest of the way, for Wait; nil: land
	land   func(*wire.Message, error) // what becomes of the upstream's answer
	seen   *observe.Call              // what observers are told; nil: there are none
	flight flight.Flight
}

// stateless is what belongs to a stateless request.
type stateless struct {
	from     observe.Peer  // whose it is
	handle   string        // of the run; it is in the request's bytes no more
	original *wire.Message // the request with it; nil: it had none
	pipe     *bridge.Pipe  // on which it came; nil: on a stream of its own
}

// Wait runs the rest of the call's way, or as much of it as the client's request waits for.
func (c *call) Wait() {
	if c.next == nil && c.steps() && c.client.Amends(c.server) && bridge.Declares(c.m, "") {
		c.waitInput()
		return
	}
	c.rest()
}

func (c *call) rest() {
	if c.next != nil {
		c.next()
		return
	}
	c.land(c.flight.Await())
}

// later leaves the rest of the way to Wait.
func (c *call) later(next func()) wire.Pending {
	c.next = next
	return c
}

// awaiting leaves the upstream's answer, when it comes, to land.
func (c *call) awaiting(land func(*wire.Message, error)) wire.Pending {
	if c.resent == resent { // which it awaits already
		return nil
	}
	c.land, c.next = land, nil
	return c
}

// Detach lets a call go on by itself that only waits for the upstream's answer,
// where that comes on the upstream's own read loop.
func (c *call) Detach(done func()) bool {
	if c.land == nil {
		return false
	}
	c.flight.Afterwards(done)
	if !c.flight.Then(c.landing()) {
		alone := c.flight.Afterwards(nil) == nil
		if alone { // its client was asked meanwhile
			go c.rest()
		}
		return alone
	}
	if in := c.flight.Input(); in != nil && in.Left() { // its client was asked before there was anything to call
		c.flight.Released()
	}
	return true
}

// landing is land for the upstream's read loop, which waits for no disk.
func (c *call) landing() func(*wire.Message, error) {
	if !c.s.run.Lasts() || !c.Settles() {
		return c.land
	}
	return func(m *wire.Message, err error) {
		if !c.s.p.lasts(func() { c.land(m, err) }) {
			c.land(m, err)
		}
	}
}

// answer gives the client the answer and ends the call.
func (c *call) answer(raw []byte) wire.Pending {
	if raw == nil {
		c.seen.Failed(observe.Fault{Cancelled: true})
	}
	return c.answerWith(func() { c.out.Answer(raw) }, raw)
}

// answerWith is answerBy for a call whose client may be another request by now.
func (c *call) answerWith(give func(), raw []byte) wire.Pending {
	return c.answerBy(func() {
		if in := c.flight.Input(); in != nil {
			in.Conclude(raw, give)
			return
		}
		give()
	})
}

// answerBy is answer with another way to give it. From here on nothing is asked of the client
// that was not before.
func (c *call) answerBy(give func()) wire.Pending {
	c.finish()
	c.observeEnd()
	give()
	c.flight.Settled()
	return nil
}

func (c *call) fail(code int, text string) wire.Pending {
	c.seen.Failed(observe.Fault{RPC: code})
	return c.answerFailure(code, wire.ErrorAnswer(c.id(), code, text, nil))
}

// result answers with a result of the proxy's own.
func (c *call) result(result []byte) wire.Pending {
	out, ok := c.out.(wire.ResultStream)
	if !ok {
		return c.answer(wire.ResultAnswer(c.id(), result))
	}
	return c.answerBy(func() { out.AnswerResult(c.id(), result) })
}

// doneWith is result for one that has no members that its client wants yet.
func (c *call) doneWith(result []byte) wire.Pending {
	return c.result(c.client.Result(result, c.s.shown.Hello.Load().ServerInfo(), ""))
}

func (c *call) pong() wire.Pending { return c.result([]byte("{}")) }

func (c *call) id() []byte { return c.m.Bytes(c.m.ID) }

// finish takes the call out of those under way.
func (c *call) finish() {
	c.s.forget(c)
	c.leavePipe()
	c.s.run.Use()
	c.flight.Finish()
}

// leavePipe lets the request's id be another's, where it came on a pipe.
func (c *call) leavePipe() {
	if c.stateless != nil && c.pipe != nil {
		c.pipe.Forget(c.m.IDKey(), &c.flight)
	}
}

// expire gives up a call whose time has run out. The upstream is then looked at,
// whether it answers at all, unless it waits for a client itself.
func (c *call) expire() {
	c.flight.Abandon(`{"requestId":0,"reason":"no answer in time"}`, refusal.ErrGivenUp)
	if up := c.flight.Up(); up != nil && !c.s.link.AwaitsClients() {
		up.Overdue()
	}
}

// resending is where a call stands whose upstream has asked its client, and is to get the
// request again.
type resending uint8

const (
	notResent resending = iota
	toBeResent
	resent
)

// errAnswered is why a call is not sent again that has its answer.
var errAnswered = errors.New("it was answered")

// Asks implements bridge.Caller.
func (c *call) Asks() bool { return !c.client.Stateless() }

// Go implements bridge.Caller.
func (c *call) Go(f func()) bool { return c.s.p.lasts(f) }

// Resend implements bridge.Caller: the policy may not allow the call any more, or it may
// have to wait for a turn that it takes by now. Its time does not run meanwhile.
func (c *call) Resend() error {
	if gaveUp := c.flight.GaveUp(); gaveUp != nil || !c.gated {
		return gaveUp
	}
	c.flight.Deadline.Suspend()
	c.resent = toBeResent
	defer func() { c.resent = notResent }()
	c.look(c.conn.Cached(surface.ListOf(c.Kind)))
	e, moved, held := c.s.run.Keeps(c)
	if e == run.ListWanted {
		if err := c.fetch(c.conn); err != nil {
			return err
		}
		e, moved, held = c.s.run.Keeps(c)
	}
	c.s.run.Tell(nil, run.Shifts{moved})
	if held {
		wait(c.decided(e, c.conn))
	} else {
		wait(c.enter(c.conn))
	}
	if c.resent != resent {
		return errAnswered
	}
	return nil
}

// translated is the request as the upstream of a connection reads it: without what the
// policy does not let that ask of the client, and, where the call has no run, without
// the extension of tasks: one of them would be anybody's who has its id.
func (c *call) translated(conn *bridge.Upstream, m *wire.Message) *wire.Message {
	c.server = conn.Server
	hidden := bridge.Hidden{}
	if c.client.Stateless() {
		hidden = surface.Hides(c.s.run.Where().UpstreamMay())
		hidden.Tasks = c.runless() && !c.s.run.Shadow()
	}
	return c.server.Request(m, c.client, hidden, c.introduction)
}

// introduction is how the call's client is introduced to the upstream.
func (c *call) introduction() bridge.Introduction {
	if c.client.Stateless() {
		return bridge.IntroductionIn(c.m)
	}
	return c.s.introduction()
}

// introduction is what initialize, and logging/setLevel, said of the client.
func (s *session) introduction() (of bridge.Introduction) {
	if h := s.shown.Hello.Load(); h != nil {
		of = h.Introduction
		if level := s.wants.Level(); level != nil {
			of.Level = level.P.Level
		}
	}
	return of
}

// connect gets a connection that was not at hand.
func (c *call) connect() (*bridge.Upstream, error) {
	defer c.seen.Waiting()()
	return c.s.link.Get()
}

// withID is the upstream's answer under the client's id.
func (c *call) withID(m *wire.Message) []byte {
	return wire.Splice(m.Raw, wire.Edit{At: m.ID, With: c.id()})
}

// servedInDrain reports whether a request is answered while a drain refuses others. Lists are:
// after the result of a tool that it has not listed the Python SDK lists the tools, and its
// caller never sees that result where the list is refused.
func (c *call) servedInDrain() bool {
	switch c.m.Method {
	case "ping", "tools/list", "resources/list", "resources/templates/list", "prompts/list":
		return true
	}
	return false
}

// tooLate refuses a request that has come during the drain, so that it is served, or its client can try, elsewhere.
func (c *call) tooLate() wire.Pending {
	c.s.p.drain.Late.Add(1)
	c.s.log.Info("refused: the proxy is ending", c.about("method", wire.Clip(c.m.Method))...)
	c.seen.Failed(observe.Fault{Code: policy.UpstreamUnavailable})
	raw := wire.ErrorAnswer(c.id(), wire.CodeInternal, refusal.TooLate, nil)
	return c.answerBy(func() {
		if !wire.MoveOn(c.out, runs.LookAgain(c.s.run.ForRunless)) {
			wire.Decline(c.out, raw)
		}
	})
}

// unsent answers a call that start has not sent, or has it be served elsewhere.
func (c *call) unsent() wire.Pending {
	if c.flight.IsCancelled() || wire.MoveOn(c.out, runs.LookAgain(false)) {
		return c.answer(nil)
	}
	c.unavailable(link.ErrEnding)
	return nil
}

// refuseOut answers a call with an error that is not, or not yet, under way.
func (c *call) refuseOut(code int, text string, data []byte) wire.Pending {
	raw := wire.ErrorAnswer(c.id(), code, text, data)
	if out := c.failing(); out != nil {
		out.Fail(code, raw)
	} else {
		c.out.Answer(raw)
	}
	return nil
}

// where is where the run stands, for who asks.
func (c *call) where() run.Snapshot { return c.s.run.Where().As(c.Who) }

// who is whose call it is.
func (c *call) who() *observe.Peer {
	if c.stateless != nil {
		return &c.from
	}
	return &c.s.peer
}

// about says in the log whose call it is.
func (c *call) about(pairs ...any) []any { return c.who().About(pairs) }

// steps reports whether a request is one that can move a run.
func (c *call) steps() bool {
	switch c.m.Method {
	case "tools/call", "resources/read", "prompts/get":
		return true
	}
	return false
}

// definition is what the upstream's list says of what a call asks for.
type definition struct {
	offer    *wire.List      // the list; nil: it is not at hand
	pins     *catalogue.Pins // that the tool was compared with
	changes  lock.Changes    // since the tool was locked; where that refuses it
	misfit   handle.Reason   // why the tool's calls cannot carry a handle
	nameless bool            // no list is there for the names in an annotation
	asked    bool            // one was asked for
}

// compare finds out whether the tool that is called is what was locked. The list is the one
// that decides everything else.
func (c *call) compare() {
	c.pins, c.Locked = c.s.p.lists.Pins.Load(), run.AsLocked
	if c.changes = c.pins.Changes(c.offer, c.Name); c.changes != nil {
		c.Locked = run.Differs
	}
}

// Refresh implements runs.Call: the call is compared with a lock that has been put in force
// since, so that none is decided by the one before.
func (c *call) Refresh() {
	if c.Locked != run.NotCompared && c.pins != c.s.p.lists.Pins.Load() {
		c.compare()
	}
}

// Decided implements runs.Call.
func (c *call) Decided() *run.Call { return &c.Call }

// Asked implements asks.For.
func (c *call) Asked(open bool) {
	if open {
		c.flight.Asks.Add(1)
		c.flight.Deadline.Suspend()
	} else {
		c.flight.Asks.Add(-1)
		c.flight.Deadline.Resume()
	}
}

// AsksClient implements runs.Call.
func (c *call) AsksClient() bool { return c.flight.Asks.Load() > 0 }

// handled reports whether the call has to be of a tool that can take the argument.
func (c *call) handled() bool {
	return c.s.p.handles != nil && c.client.Stateless() && c.Kind == policy.Tool
}

// unfit reports whether the call was refused since its tool cannot take the argument.
func (c *call) unfit() bool {
	return c.Misfit && c.Verdict.Bound && c.Verdict.Code == policy.NotAvailable && !c.Outlived
}

// validated reports whether the policy wants the call's arguments checked.
func (c *call) validated() bool { return c.Kind == policy.Tool && c.Snapshot.InForce().Validate() }

// invalid says why the call's arguments do not fit the listed input schema, where the
// policy asks for that; "": they do. In shadow there may be no list to go by.
func (c *call) invalid() string {
	if !c.validated() {
		return ""
	}
	return c.s.p.lists.Check(c.offer, c.Name, c.m.Bytes(c.m.P.Arguments))
}

// headed is the stream of a call of a tool whose headers are to say what its
// arguments do; nil: none is.
func (c *call) headed() wire.HeadedStream {
	if !c.client.Stateless() || c.Kind != policy.Tool || c.m.Method != "tools/call" {
		return nil
	}
	out, _ := c.out.(wire.HeadedStream)
	return out
}

// headerFault says in what a call's headers and its arguments differ; empty: in nothing.
func (c *call) headerFault() string {
	out := c.headed()
	if out == nil || c.offer == nil {
		return ""
	}
	return c.s.p.lists.HeaderFault(c.offer, c.Name, c.m.Bytes(c.m.P.Arguments), out.Headers)
}

// observe begins to note what is told of the call.
func (c *call) observe() {
	c.seen = c.s.p.cfg.Telemetry.Begin(c.s.p.cfg.Journal, c.m, c.who().Session, c.out)
}

// deny notes that the call is refused, or will come to nothing, and why.
func (c *call) deny(code policy.Code) {
	fault := observe.Fault{Code: code}
	if c.seen.Failed(fault); c.named() && fault.Refusal() {
		c.s.run.Decline(&c.Call, code)
	}
	c.decide()
}

// decide records the decision on a call that does not go upstream, once.
func (c *call) decide() {
	if c.seen.Audited() && c.m.Method != "ping" {
		c.seen.Decide(c.decision())
	}
}

// begin records, once, that the call goes upstream. What steps no run is no entry of one, but
// has its lines in the audit.
func (c *call) begin() {
	j := c.s.p.cfg.Journal
	if !c.gated {
		j = c.s.p.cfg.Telemetry.Journal()
	}
	if j != nil && !c.seen.Decided() {
		c.seen.Sent(j, c.decision())
	}
}

// record records what became of a call that was sent and has an outcome, or why it has none.
func (c *call) record(lost error, o policy.Outcome) {
	if c.seen == nil || o == outcome.None || c.seen.Recorded() {
		return
	}
	if lost != nil && c.flight.IsCancelled() {
		c.seen.Failed(observe.Fault{Cancelled: true})
	} else if lost != nil {
		c.seen.Failed(observe.Fault{Code: policy.OutcomeUnknown})
	}
	c.operation()
	c.seen.Record(*c.who())
}

func (c *call) decision() observe.Decision {
	d := observe.Decision{Peer: *c.who(), Message: c.m, Named: c.named(), Kind: c.Kind, Name: c.Name, Rule: c.Verdict.Rule, Case: c.Verdict.Symbol.Case, Note: c.note}
	at := c.Snapshot
	if at.Policy == nil {
		at = c.where()
	}
	d.Policy = at.Policy
	if d.Named {
		d.State = at.State()
		d.Run, d.Seq = c.s.run.EntryOf(&c.Call)
	}
	return d
}

// named reports whether the call is about a name.
func (c *call) named() bool { return c.gated || c.Name != "" }

// observeEnd tells of the call's end.
func (c *call) observeEnd() {
	if c.seen == nil {
		return
	}
	c.decide()
	c.operation()
	c.seen.Record(*c.who())
	c.seen.End(c.s.operations())
	c.seen = nil
}

// operation completes what is known of the call.
func (c *call) operation() {
	op := &c.seen.Op
	op.Message, op.Version = c.m, c.s.Version()
	op.Named, op.Kind, op.Name = c.named(), c.Kind, c.Name
	if op.Named {
		op.Familiar = c.familiar()
		op.Run, op.Seq = c.s.run.EntryOf(&c.Call)
	}
	c.seen.Measure(c.flight.Deadline.Started())
}

// familiar reports whether the call's name is one of those that the upstream lists or the policy binds exactly.
func (c *call) familiar() bool {
	if c.Kind != policy.Signal && c.Known && c.Listed || c.Verdict.Allowed && !c.Verdict.ByGlob {
		return true
	}
	p := c.s.policyNow()
	return p != nil && p.BoundAnywhere(c.Kind, c.Name, false)
}

// input is the client's end of the call where a stateless client is to be asked in the middle of it: made, if there is none.
func (c *call) input() (in *bridge.Input) {
	c.flight.Update(func(f *flight.State) {
		if f.Asking == nil {
			f.Asking = c.s.p.inputs.NewInput(c, c.party(), f.Stage != flight.UnderWay)
		}
		in = f.Asking
	})
	return in
}

func (c *call) party() bridge.Party {
	return bridge.Party{Request: c.m, From: c.from.Principal, Within: c.s, Out: c.out}
}

// waitInput waits until the client's request is answered, which may be long before the call is.
func (c *call) waitInput() {
	in := c.input()
	go c.rest()
	<-in.Released()
}

// wantsTask reports whether a call asks for a task in place of its result. Clients read no other result of it then, so that a
// refusal is told as an error.
func (c *call) wantsTask() bool { return c.m.P.Task.Present() && !c.client.Stateless() }

// wantsUnknownTask reports whether a call asks for a task where none are offered.
func (c *call) wantsUnknownTask() bool { return c.m.P.Task.Present() && !c.s.tasked(c.client) }

// patience is how long an answer may take. That to tasks/result comes when the task has ended.
func (c *call) patience() time.Duration {
	if c.m.Method == "tasks/result" {
		return max(c.s.p.cfg.CallTimeout, c.s.p.cfg.TaskTimeout)
	}
	return cmp.Or(c.Timeout(), c.s.p.cfg.CallTimeout)
}
