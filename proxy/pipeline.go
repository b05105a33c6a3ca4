package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/outcome"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// A request of a client has one way, and this file is it, from top to bottom:
//
//  1. request: it is entered among those under way, and refused if there are too many.
//  2. route: what it asks for decides who serves it. What follows are the calls of a tool, a
//     resource or a prompt; all else is answered, or relayed, without a run.
//  3. gate: the run decides, by the policy, at once or when the turn to move it has come.
//  4. send: the journal has it, and then the upstream.
//  5. settle: what became of it moves the run.
//  6. record: the journal has that, and the turn passes on.
//  7. notify, and answer: the client learns which lists changed, and then what it asked for.
//
// What waits for a connection, a list or the turn goes on in Wait, on a goroutine of the
// framing's; the upstream's answer comes on the upstream's.

// request takes a request of the session's client.
func (s *session) request(m *wire.Message, out wire.Stream) wire.Pending {
	c := &call{s: s, m: m, key: m.IDKey(), out: out}
	c.Who = s.shown.Asked(wire.AsksOn(out))
	c.observe()
	if refusal := s.admit(c); refusal != "" {
		return c.turnedAway(refusal)
	}
	if s.p.drain.Begun.Load() && !c.servedInDrain() {
		return c.tooLate()
	}
	if m.Method != "initialize" && m.Method != "ping" && s.wait(c) {
		return waiting{c}
	}
	if c.crowdsOut() {
		s.run.Expect(c)
		return c.later(func() { c.whenRoom(c.inTime) })
	}
	return c.routed()
}

// route takes a request its way, and returns the rest of that, nil if it is answered.
type route = func(*call) wire.Pending

// routes are the ways that requests take.
type routes struct {
	of    [2]map[string]route // by [bridge.Client.Index], and method
	other route               // of what a passthrough names
	// task takes an answer that stands for a task, and reports whether that has the call's turn now: then the client has its answer.
	task func(c *call, m *wire.Message) bool
	// unfinished gives a client what an answer that may be no result yet means to it, and reports
	// false for one that is to be given as others are.
	unfinished func(c *call, m *wire.Message, meaning bridge.Meaning) (wire.Pending, bool)
	shadow     func(c *call, r route) wire.Pending // where nothing is refused; r is the way that it would take else, nil: none
	approval   func(c *call)                       // of a call that somebody has to approve
}

// routed sends a request its way.
func (c *call) routed() wire.Pending {
	if answer, ok := c.s.tools().Call(c); ok {
		return answer
	}
	route, ok := c.s.p.routes.of[c.client.Index()][c.m.Method]
	switch {
	case c.s.shown.Hello.Load() == nil && c.m.Method != "initialize" && c.m.Method != "ping":
		return c.before()
	case c.s.run.Shadow():
		return c.s.p.routes.shadow(c, route)
	case ok:
		return route(c)
	}
	if c.s.policyNow().Passthrough(c.m.Method) {
		return c.s.p.routes.other(c)
	}
	return c.fail(wire.CodeMethodNotFound, c.unknownMethod())
}

func (c *call) callTool() wire.Pending     { return c.gate(policy.Tool, c.m.P.Name, c.m.P.NameAt) }
func (c *call) readResource() wire.Pending { return c.gate(policy.Resource, c.m.P.URI, c.m.P.URIAt) }
func (c *call) getPrompt() wire.Pending    { return c.gate(policy.Prompt, c.m.P.Name, c.m.P.NameAt) }

// gate takes a call through the automaton: decided at once where all that it
// takes is at hand, else in Wait.
func (c *call) gate(k policy.Kind, name string, at wire.Span) wire.Pending {
	if !at.Present() || c.m.Raw[at.Start] != '"' {
		return c.fail(wire.CodeInvalidParams, "params."+refusal.NameKey(k)+" must be a string")
	}
	c.Kind, c.Name, c.gated, c.Listed = k, name, true, true
	c.Arguments = (*arguments)(c.m)
	conn := c.s.link.Live()
	if conn == nil {
		return c.later(c.prepare)
	}
	c.look(conn.Cached(surface.ListOf(k)))
	return c.enter(conn)
}

// arguments are those of a call, as cases compare them.
type arguments wire.Arguments

// JSON returns the object that they are; see [run.Arguments].
func (a *arguments) JSON() []byte { return (*wire.Message)(a).Bytes(a.P.Arguments) }

// At returns the argument at a path; see [run.Arguments].
func (a *arguments) At(path []string) (value policy.Argument, unclear bool) {
	scalar, ok, unclear := (*wire.Arguments)(a).Scalar(path)
	switch {
	case ok && scalar.Literal:
		value = policy.Literal(scalar.Text)
	case ok:
		value = policy.Text(scalar.Text)
	}
	return value, unclear
}

// look finds out whether the upstream lists the name. Without a list it is not
// known, and what hangs on it waits for one.
func (c *call) look(l *wire.List) {
	c.offer, c.Listed, c.Known, c.Locked, c.Misfit = l, true, l != nil, run.NotCompared, false
	if !c.Known {
		c.nameless = !c.asked && c.s.shown.Hello.Load().Annotate != surface.AnnotateOff && c.s.shown.LastKnown(surface.ListOf(c.Kind)).List == nil
		c.NeedsList = c.nameless || c.headed() != nil || c.handled()
		return
	}
	c.Listed = l.Has(c.Name)
	if c.Kind == policy.Tool && c.s.run.Rules().Pin() == policy.PinRefuse {
		c.compare()
	}
	if c.handled() {
		c.misfit = c.s.p.handles.Argument.Misfit(l, c.Name)
		c.Misfit = c.misfit != handle.Fits
	}
}

// enter asks the run, and goes as far as it can without waiting.
func (c *call) enter(conn *bridge.Upstream) wire.Pending {
	if c.wantsUnknownTask() && !c.s.run.Shadow() {
		return c.fail(wire.CodeMethodNotFound, "tasks are not offered here: call without params.task")
	}
	if e := c.s.run.Enter(c, c.s.p.cfg.MaxQueue); e != run.Queued {
		return c.decided(e, conn)
	}
	return c.later(func() { c.awaitTurn(c.proceed) })
}

// awaitTurn waits in the queue, and goes on when the turn has come, to be decided anew.
func (c *call) awaitTurn(onward func()) {
	timeout := time.NewTimer(c.s.p.cfg.TurnTimeout)
	defer timeout.Stop()
	over := c.seen.Waiting()
	select {
	case <-c.Turn:
		over()
		onward()
	case <-timeout.C:
		over()
		c.leave()
		wait(c.refuse(policy.Busy))
	case <-c.flight.Cancellation():
		c.leave()
		c.unsent()
	case <-c.s.p.drain.Taking.Done():
		c.leave()
		c.unsent()
	}
}

// proceed goes on with a call that has come by the turn, over the connection
// and by the list that there are now.
func (c *call) proceed() {
	conn := c.s.link.Live()
	if c.resent != notResent {
		conn = c.conn
	}
	if conn == nil {
		c.leave()
		c.prepare()
		return
	}
	c.look(conn.Cached(surface.ListOf(c.Kind)))
	e, ok := c.s.run.Granted(c)
	if !ok { // a change of mode has taken it out of the queue
		wait(c.enter(conn))
		return
	}
	wait(c.decided(e, conn))
}

// decided goes on with a call that the run has admitted or turned away.
func (c *call) decided(e run.Admission, conn *bridge.Upstream) wire.Pending {
	switch {
	case c.Snapshot.Shadow && e != run.ListWanted:
		return c.sendDecided(conn)
	case c.Unclear:
		c.leave()
		c.s.run.Decline(&c.Call, policy.UnknownCase)
		return c.fail(wire.CodeInvalidRequest, "two members of arguments read alike to some: send one")
	case e == run.Refused:
		return c.refuse(c.Verdict.Code)
	case e == run.Crowded:
		return c.refuse(policy.Busy)
	case e == run.TaskRunning:
		return c.refuse(policy.TaskRunning)
	case e == run.ListWanted:
		return c.later(func() { c.listFirst(conn) })
	}
	c.Overlooked = policy.CodeNone
	if refusal := c.invalid(); refusal != "" {
		c.leave()
		return c.refuseText(policy.ValidationFailed, refusal)
	}
	if fault := c.headerFault(); fault != "" {
		c.leave()
		return c.fail(wire.CodeHeaderMismatch, fault)
	}
	if e == run.ApprovalWanted {
		return c.later(func() { c.s.p.routes.approval(c) })
	}
	return c.first(conn)
}

// send sends the request upstream, and leaves the answer to landed.
func (c *call) send(conn *bridge.Upstream) wire.Pending {
	if !c.start(conn) {
		c.leave()
		return c.unsent()
	}
	return c.awaiting(c.landed)
}

// start sends the request upstream. It reports false, and sends nothing, if the
// call was cancelled before, or the proxy is ending: then unsent is the rest.
func (c *call) start(conn *bridge.Upstream) bool {
	if c.s.p.drain.Begun.Load() && !c.servedInDrain() || c.flight.IsOff() {
		return false
	}
	if c.resent == toBeResent {
		c.resent = resent
		c.flight.Deadline.Resume()
		return true
	}
	c.begin()
	m := c.translated(conn, c.seen.Traced(c.m))
	c.flight.Deadline.Start(c.patience(), &c.s.timer) // before the upstream can ask on its behalf
	c.conn = conn
	c.flight.Sent(conn.Start(m, c))
	return true
}

// landed takes the upstream's answer, or why there is none.
func (c *call) landed(m *wire.Message, err error) {
	if err != nil && c.flight.IsAnswered() { // it was not to be sent again
		return
	}
	c.seen.Answered(m, err)
	if err == nil && m.Kind == wire.Result && m.Raw[m.Result.Start] != '{' {
		err = outcome.ErrNoObject
	}
	var meaning bridge.Meaning
	if err == nil {
		meaning = c.server.Meaning(c.m, m)
	}
	switch {
	case c.Snapshot.Shadow:
	case meaning == bridge.Unfitting:
		m, err = nil, outcome.ErrUnfitting
	case meaning == bridge.Task && c.runless():
		m, err = nil, outcome.ErrTaskOfNoRun
	case meaning == bridge.Task && c.s.p.routes.task(c, m):
		return
	}
	o := outcome.Of(m, meaning, err)
	if meaning == bridge.Task && c.Begun() != 0 { // which nobody follows in shadow
		o = policy.Unknown
	}
	_, moved, unwritten := c.settle(run.End{Outcome: o, Result: outcome.Result(m, err)})
	if unwritten != nil {
		m, err, o = nil, unwritten, policy.Unknown
	}
	c.record(err, o)
	c.notifyChanged(run.Join(moved, c.passOn(o)))
	c.reply(m, err, o)
}

// settle moves the run along the outcome, if it is one, and names it. The call keeps its turn. The error is that
// what becomes of it is not durable.
func (c *call) settle(end run.End) (name string, moved run.Shift, unwritten error) {
	if end.Outcome == outcome.None {
		return "", run.Shift{}, nil
	}
	name = end.Outcome.String()
	defer func() { c.seen.Settled(name) }()
	if !c.Settles() && !c.s.run.Lasts() {
		return name, run.Shift{}, nil
	}
	if c.s.run.Lasts() {
		end.Took = c.flight.Deadline.Ran()
	}
	ended, moved, err := c.s.run.Settle(&c.Call, end)
	if errors.Is(err, runs.ErrUnwritten) {
		return name, moved, &wire.CallError{Sent: true, Err: err}
	}
	if err != nil {
		c.s.log.Error("stepping the run: it stays where it is", "error", c.s.p.cfg.Fault(err))
	}
	if a := c.Verdict.Alternative; a != nil && ended.Outcome != outcome.None {
		name = a.OutcomeName(ended.Outcome)
	}
	if c.restarted = ended.Step.Restarted; ended.Step.Changed {
		from, to := ended.By.StateName(ended.Step.From.State), ended.By.StateName(ended.Step.Entered)
		c.seen.Stepped(from, to)
		c.s.p.cfg.Telemetry.Stepped(from, to, name)
		if c.s.log.IsInfo() {
			c.s.log.Info("transition", c.about("from", from, "to", to,
				c.Kind.String(), c.Name, "outcome", name, "complete", ended.Step.Terminal, "rule", c.Verdict.Rule.String())...)
		}
	}
	return name, moved, nil
}

// passOn gives the turn to the call that has waited longest, once what became of this one is
// recorded.
func (c *call) passOn(o policy.Outcome) run.Shift {
	switch {
	case o == outcome.None:
		return c.s.run.Leave(&c.Call)
	case !c.Verdict.Turn:
		return run.Shift{}
	}
	return c.s.run.Pass(&c.Call)
}

// leave gives up the call's turn, or its place in the queue, without an outcome.
func (c *call) leave() { c.s.run.Tell(nil, run.Shifts{c.s.run.Leave(&c.Call)}) }

// notifyChanged tells the clients of the run which lists a call changed: its own on the call's stream,
// before its answer, or, where requests stand alone, on the streams that listen.
func (c *call) notifyChanged(moved run.Shifts) {
	out := c.out
	if c.client.Stateless() {
		out = c.s.own
	}
	c.s.shown.Tell(out, moved)
	c.s.run.Tell(c.s, moved)
}

// reply gives the client the upstream's answer, or says why there is none: o is
// what that means for a call that steps.
func (c *call) reply(m *wire.Message, err error, o policy.Outcome) {
	switch {
	case err == nil:
		c.give(m)
	case c.flight.IsCancelled():
		c.answer(nil)
	case o == policy.Unknown:
		c.unknown(err)
	default:
		c.unavailable(err)
	}
}

// What follows is for calls that are decided in shadow.

// sendDecided sends a decided call upstream, whatever was decided.
func (c *call) sendDecided(conn *bridge.Upstream) wire.Pending {
	code := c.wouldRefuse()
	if code != policy.CodeNone && code != c.Overlooked {
		c.overlook(code)
	}
	c.Overlooked = code
	return c.first(conn)
}

// wouldRefuse is the code with which a decided call would be refused.
func (c *call) wouldRefuse() policy.Code {
	switch {
	case c.wantsUnknownTask():
		return policy.NotAvailable
	case c.Unclear:
		return policy.UnknownCase
	case !c.Verdict.Allowed:
		return c.Verdict.Code
	case c.invalid() != "":
		return policy.ValidationFailed
	}
	return policy.CodeNone
}

// overlook notes that a request would have been refused, and lets it step nothing.
func (c *call) overlook(code policy.Code) {
	c.Overlooked = code
	about := []any{"why", notCarried}
	if c.Name != "" {
		about = []any{"state", c.Snapshot.State(), "rule", c.Verdict.Rule.String(), "why", code.Text()}
	}
	c.s.log.Info(wouldBeRefused, c.aboutTarget([]any{"code", code.String()}, about...)...)
	c.seen.ShadowRefused(code)
}

const (
	wouldBeRefused = "would be refused"
	notCarried     = "the policy does not carry it: passthrough, upstream_may and templates say what it does"
)

// first has it kept that the call begins, where its run lasts, and then sends it.
func (c *call) first(conn *bridge.Upstream) wire.Pending {
	if !c.s.run.Lasts() {
		return c.send(conn)
	}
	durable, again, err := c.s.run.Begin(&c.Call)
	switch {
	case err != nil:
		return c.begun(conn, err)
	case again:
		c.leave()
		return c.enter(conn)
	case durable != nil:
		return c.later(func() { wait(c.begun(conn, durable())) })
	}
	return c.send(conn)
}

// begun goes on with a call of which it is kept that it has begun, or why it is not.
func (c *call) begun(conn *bridge.Upstream, err error) wire.Pending {
	if err != nil {
		if c.leave(); errors.Is(err, runs.ErrAgain) {
			return c.enter(conn)
		}
		return c.refuse(policy.StoreUnavailable)
	}
	return c.send(conn)
}

// What follows is for calls that wait until they can be recorded.

// turnedAway tells of a request that is not even taken, unless it is served elsewhere. What is refused in any
// number has to wait until it can be recorded.
func (c *call) turnedAway(why string) wire.Pending {
	if c.s.moves(c.out) {
		return nil
	}
	c.s.p.awaitRoom()
	c.seen.Failed(observe.Fault{RPC: wire.CodeInvalidRequest})
	c.observeEnd()
	return c.refuseOut(wire.CodeInvalidRequest, why, nil)
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
	return c.m.Method != "initialize" || c.s.opening || c.s.shown.Hello.Load() != nil
}

// whenRoom lets the call go onward when it can be recorded.
func (c *call) whenRoom(onward func() wire.Pending) {
	over := c.seen.Waiting()
	c.s.p.awaitRoom()
	over()
	wait(onward())
}

// inTime is routed for a call that has waited before.
func (c *call) inTime() wire.Pending {
	if c.s.p.drain.Begun.Load() {
		return c.tooLate()
	}
	return c.routed()
}

// What follows is for calls that something is not at hand for.

// prepare gets the connection that was not at hand.
func (c *call) prepare() {
	conn, err := c.connect()
	if err != nil {
		c.withoutUpstream(err)
		return
	}
	c.look(conn.Cached(surface.ListOf(c.Kind)))
	wait(c.enter(conn))
}

// listFirst gets the list on which the decision hangs, or only the names in the
// annotation: without those the call goes on.
func (c *call) listFirst(conn *bridge.Upstream) {
	if c.nameless && !c.Snapshot.Shadow {
		c.asked = true
		c.fetchAll(conn)
		c.look(conn.Cached(surface.ListOf(c.Kind)))
		wait(c.enter(conn))
		return
	}
	if err := c.fetch(conn); err != nil {
		if !c.Snapshot.Shadow {
			c.withoutUpstream(err)
			return
		}
		c.Unlistable = true
	}
	wait(c.enter(conn))
}

// fetchAll gets what a refusal or an annotation names. It waits no longer than a refusal may.
func (c *call) fetchAll(conn *bridge.Upstream) {
	defer c.seen.Waiting()()
	ctx, stop := context.WithTimeout(c.s.p.drain.Lasting, c.s.p.cfg.CancelGrace)
	defer stop()
	c.s.shown.FetchAll(ctx, conn)
}

func (c *call) fetch(conn *bridge.Upstream) error {
	defer c.seen.Waiting()()
	patience := c.s.p.cfg.CallTimeout
	if c.Snapshot.Shadow {
		patience = c.s.p.cfg.CancelGrace // nothing is held up for what is only noted
	}
	ctx, stop := context.WithTimeout(c.s.p.drain.Lasting, patience)
	defer stop()
	l, err := conn.List(ctx, surface.ListOf(c.Kind))
	if err != nil {
		return c.s.p.drain.EndedBy(err)
	}
	if c.Kind != policy.Resource { // of which templates tell, too
		c.s.p.lists.Found(catalogue.View{List: l})
	}
	c.look(l)
	if c.Kind == policy.Tool && c.Locked == run.NotCompared {
		c.compare()
	}
	return nil
}

// wait runs the rest of a way, if there is any.
func wait(rest wire.Pending) {
	if rest != nil {
		rest.Wait()
	}
}

// withoutUpstream answers a call while the upstream cannot be reached: what the
// policy refuses by exact names is refused as ever.
func (c *call) withoutUpstream(err error) {
	c.s.run.Look(c)
	if !c.Verdict.Allowed && !c.Verdict.ByGlob && !c.Snapshot.Shadow {
		wait(c.refuse(c.Verdict.Code))
		return
	}
	c.unavailable(err)
}
