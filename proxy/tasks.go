package proxy

import (
	"context"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
	"github.com/fsm-proxy/fsm-proxy/proxy/outcome"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/tasks"
)

// started takes an answer that stands for a task, and reports whether the call's turn is the
// task's now: then the client hears of it as soon as it would be found again after a restart.
func (c *call) started(m *wire.Message) bool {
	left := c.remains()
	t := tasks.New(c.server.TaskState(c.m, m), c.conn, c.who().Principal, c.introduction(), c.s.p.cfg.CallTimeout)
	t.Call, t.Tool = left, c.Name
	wanted, kept := c.s.run.HandOver(t, &c.Call, &left.Call)
	c.s.run.EnterTask(t)
	c.s.log.Info("task begun", c.about("task", runs.NameOf(t.ID), "tool", wire.Clip(c.Name), "holds the turn", wanted && c.Verdict.Turn)...)
	if wanted && (link.Ended(t.Conn) || !c.s.p.lasts(func() { c.s.p.watch(t) })) {
		t.Lost(c.s.p.drain.Lasting)
	}
	switch err := kept(); {
	case !wanted:
	case err != nil:
		c.unknown(&wire.CallError{Sent: true, Err: err})
	default:
		c.give(m)
	}
	return wanted
}

// remains is what is left of an answered call whose outcome is still to come: all that steps the run, and nothing of its message.
func (c *call) remains() *call {
	left := &call{s: c.s, client: c.client, gated: c.gated, Call: c.Remains()}
	if c.stateless != nil {
		left.stateless = &stateless{from: c.from}
	}
	if left.seen = c.seen.Remains(); left.seen != nil {
		left.m = &wire.Message{Method: c.m.Method}
	}
	return left
}

// watch polls a task that holds the turn until its end.
func (p *Proxy) watch(t *tasks.Task) {
	ctx, stop := context.WithTimeout(p.drain.Lasting, p.cfg.TaskTimeout)
	defer stop()
	t.Watch(ctx)
}

// goOn polls a task on that was begun before the proxy was started anew, over a connection that is no session's.
func (p *Proxy) goOn(t *tasks.Task, k *tasks.Kept, until time.Time, known func()) {
	p.lasts(func() {
		ctx, stop := context.WithDeadline(p.drain.Lasting, until)
		defer stop()
		dial, leave := p.uplinks.Apart(p.greets.OpeningAgain(k.Client(), k.Introduction(), p.Runs.Beginning().UpstreamMayLater()))
		defer leave()
		t.GoOn(ctx, k.Client(), dial, known)
	})
}

// Ended implements tasks.Call: what becomes of the outcome has the order that it has in landed.
func (c *call) Ended(t *tasks.Task, end run.End, tell func(run.Shifts)) {
	o, moved, _ := c.settle(end) // what is not durable yet is told when it is
	if c.seen != nil {           // as another outcome of the decision that let the call go
		op := &c.seen.Op
		op.Message, op.Named, op.Kind, op.Name = c.m, true, c.Kind, c.Name
		op.Run, op.Seq = c.s.run.EntryOf(&c.Call)
		c.seen.Ended(*c.who())
	}
	shifts := run.Join(moved, c.passOn(end.Outcome))
	c.s.log.Info("task ended", c.about("task", runs.NameOf(t.ID), "tool", wire.Clip(c.Name), "outcome", o)...)
	c.s.run.TellBy(tell, shifts)
}

// ofTask carries a request about a task of the same run and principal. Somebody else's answers as one that is not there.
func (c *call) ofTask() wire.Pending {
	t := c.s.run.Tasks.Of(c.m.P.TaskID, c.who().Principal, c.client, c.s.link.Live())
	if coming := c.s.run.Tasks.Coming(c.m.P.TaskID, c.who().Principal); t == nil && coming != nil {
		return c.later(func() {
			if coming.Known(c.flight.Cancellation(), c.s.p.drain.Taking.Done()) {
				wait(c.ofTask())
			} else {
				c.unsent()
			}
		})
	}
	switch {
	case t != nil && c.s.tasked(c.client):
		return c.later(func() { c.askTask(t) })
	case c.s.tasked(c.client) && c.s.p.handles != nil && c.s.run.ForRunless && wire.MoveOn(c.out, runs.AskAll()): // it may be of a run that another process has
		return c.answer(nil)
	}
	return c.noTask()
}

func (c *call) noTask() wire.Pending {
	if !c.s.tasked(c.client) {
		return c.fail(wire.CodeMethodNotFound, c.unknownMethod())
	}
	return c.fail(wire.CodeInvalidParams, "Failed to retrieve task: Task not found")
}

// askTask asks about the task over the connection that it lives on, or, where that was lost with the proxy before this
// one, over the session's. An end that is seen so steps the run before the client learns of it.
func (c *call) askTask(t *tasks.Task) {
	conn, err := t.Conn, error(nil)
	if t.Again() {
		if conn, err = c.connect(); err == nil {
			err = t.Check(c.s.p.drain.Lasting, c.m.Method, conn, c.notifyChanged)
		}
	}
	if err == nil && !c.start(conn) {
		c.unsent()
		return
	}
	var m *wire.Message
	if err == nil {
		m, err = c.flight.Await()
		if c.seen.Answered(m, err); err == nil {
			err = t.Answered(c.s.p.drain.Lasting, c.m.Method, m, c.notifyChanged)
		}
	}
	if err == tasks.ErrGone {
		c.noTask()
		return
	}
	c.reply(m, err, outcome.None)
}

// listTasks answers tasks/list with the run's own, in one page.
func (c *call) listTasks() wire.Pending {
	switch {
	case !c.s.tasked(c.client):
		return c.noTask()
	case c.m.P.Cursor != "":
		return c.fail(wire.CodeInvalidParams, "unknown cursor: the whole list comes in one page")
	}
	return c.later(func() {
		conn, err := c.connect()
		if err != nil {
			c.unavailable(err)
			return
		}
		over := c.seen.Waiting()
		ctx, stop := context.WithTimeout(c.s.p.drain.Lasting, c.s.p.cfg.CallTimeout)
		defer stop()
		mine := func(id string) *tasks.Task { return c.s.run.Tasks.Of(id, c.who().Principal, c.client, conn) }
		own, failure, err := tasks.List(ctx, conn, mine, func() bool { return !c.flight.IsOff() })
		over()
		switch {
		case c.flight.IsOff():
			c.unsent()
		case err != nil:
			c.unavailable(err)
		case failure != nil:
			c.give(failure)
		default:
			c.result(own)
		}
	})
}

// taskTold takes the upstream's notification of where a task stands: one of the
// run's is passed on, and its end steps the run before.
func (s *session) taskTold(conn *bridge.Upstream, m *wire.Message) {
	t, state := s.run.Tasks.On(conn, m.P.TaskID), m.Bytes(m.Params)
	by, ok := t.By().(*call)
	switch {
	case !ok || by.s != s:
	case !t.Ends(state):
		s.send(m.Raw, nil)
	default:
		s.p.lasts(func() {
			t.Told(s.p.drain.Lasting, state, func(moved run.Shifts) {
				s.shown.TellOwn(moved)
				s.run.Tell(s, moved)
			})
			s.send(m.Raw, nil)
		})
	}
}
