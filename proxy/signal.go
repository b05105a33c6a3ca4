package proxy

import (
	"strconv"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/operator"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// signal takes a signal through the automaton. It is decided, waits for the turn and steps
// as a call of the upstream does, and has its outcome at once.
func (c *call) signal() wire.Pending {
	if c.m.P.Task.Present() {
		return c.fail(wire.CodeInvalidParams, policy.SignalTool+" is no task: call without params.task")
	}
	if code, fault := c.readSignal(); fault != "" {
		return c.fail(code, fault)
	}
	c.gated, c.Known, c.Listed = true, true, true
	return c.enterSignal()
}

// readSignal reads the arguments, and says what is wrong with them, "": nothing.
func (c *call) readSignal() (code int, fault string) {
	arguments := (*wire.Arguments)(c.m)
	name, ok, unclear := arguments.Scalar([]string{"name"})
	note, noted, unclearNote := arguments.Scalar([]string{"note"})
	if unclear || unclearNote {
		return wire.CodeInvalidRequest, "two members of arguments read alike to some: send one"
	}
	noted = noted && !note.Literal
	err := wire.Members(c.m.Bytes(c.m.P.Arguments), func(key string, _ wire.Span) error {
		if key != "name" && (key != "note" || !noted) {
			fault = "arguments of " + policy.SignalTool + " are the texts name and note alone"
		}
		return nil
	})
	switch {
	case !ok || name.Literal || err != nil:
		fault = "arguments.name must be a string: the signal"
	case len(note.Text) > operator.MaxNote:
		fault = "arguments.note is longer than " + strconv.Itoa(operator.MaxNote) + " bytes"
	}
	c.Kind, c.Name, c.note = policy.Signal, name.Text, note.Text
	return wire.CodeInvalidParams, fault
}

func (c *call) enterSignal() wire.Pending {
	e := c.s.run.Enter(c, c.s.p.cfg.MaxQueue)
	if e == run.Queued {
		return c.later(func() { c.awaitTurn(c.proceedSignal) })
	}
	return c.signalled(e)
}

// proceedSignal goes on with a signal that has come by the turn.
func (c *call) proceedSignal() {
	e, ok := c.s.run.Granted(c)
	if !ok { // a change of mode has taken it out of the queue
		wait(c.enterSignal())
		return
	}
	wait(c.signalled(e))
}

// signalled goes on with a signal that the run has admitted or turned away.
func (c *call) signalled(e run.Admission) wire.Pending {
	switch {
	case c.Snapshot.Shadow: // where there are none
		return c.refuse(policy.NotAvailable)
	case e == run.Crowded:
		return c.refuse(policy.Busy)
	case e == run.TaskRunning:
		return c.refuse(policy.TaskRunning)
	case e != run.Admitted:
		return c.refuse(c.Verdict.Code)
	case c.s.p.drain.Begun.Load() && !c.servedInDrain() || c.flight.IsOff():
		c.leave()
		return c.unsent()
	}
	if c.s.log.IsInfo() {
		c.s.log.Info("signal", c.about("signal", c.Name, "note", observe.Escaped(c.note), "rule", c.Verdict.Rule.String())...)
	}
	if !c.s.run.Lasts() {
		return c.take()
	}
	switch _, again, err := c.s.run.Begin(&c.Call); {
	case again:
		c.leave()
		return c.enterSignal()
	case err != nil:
		c.leave()
		return c.refuse(policy.StoreUnavailable)
	}
	return c.later(func() { wait(c.take()) })
}

// take takes a signal through the automaton that has the turn.
func (c *call) take() wire.Pending {
	c.begin()
	_, moved, unwritten := c.settle(run.End{Outcome: policy.Success})
	if unwritten != nil {
		c.notifyChanged(run.Shifts{c.passOn(policy.Unknown)})
		c.unknown(unwritten)
		return nil
	}
	led := c.where() // before anything else moves the run
	c.record(nil, policy.Success)
	c.notifyChanged(run.Join(moved, c.passOn(policy.Success)))
	if c.opaquely() {
		return c.doneWith([]byte(`{"content":[{"type":"text","text":"The signal was taken."}]}`))
	}
	return c.doneWith(c.s.shown.Signalled(led, c.restarted, c.s.run.Renews()))
}
