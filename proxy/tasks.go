package proxy

import (
	"bytes"
	"context"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
	"github.com/fsm-proxy/fsm-proxy/proxy/outcome"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/tasks"
)

// started takes an answer that stands for a task, and reports whether the call's turn is the
// task's now.
func (c *call) started(m *wire.Message) bool {
	left := c.remains()
	t := tasks.New(c.server.TaskState(c.m, m), c.conn, c.who().Principal, c.introduction().Meta(c.conn.Server), c.s.p.cfg.CallTimeout)
	t.Call = left
	holds := c.s.run.HandOver(t, &c.Call, &left.Call)
	if r := c.s.run; r.Key.Kind == runs.Handle && !t.Owner.Shared() && (t.Owner.Known() || runs.Unguessable(t.ID)) {
		c.s.p.Runs.ByTask.Enter(t, r)
	}
	c.s.log.Info("task begun", c.about("task", runs.NameOf(t.ID), "tool", wire.Clip(c.Name), "holds the turn", holds)...)
	if holds && (link.Ended(t.Conn) || !c.s.p.lasts(func() { left.watch(t) })) {
		left.conclude(t, policy.Unknown)
	}
	return holds
}

// remains is what is left of an answered call whose outcome is still to come: all
// that steps the run, and nothing of its message, which may be large.
func (c *call) remains() *call {
	left := &call{s: c.s, client: c.client, Call: c.Remains()}
	left.gated = c.gated
	if c.stateless != nil {
		left.stateless = &stateless{from: c.from}
	}
	if left.seen = c.seen.Remains(); left.seen != nil {
		left.m = &wire.Message{Method: c.m.Method}
	}
	return left
}

// watch polls a task that holds the turn until its end. It belongs to the Proxy,
// which waits for it.
func (c *call) watch(t *tasks.Task) {
	ctx, stop := context.WithTimeout(c.s.p.drain.lasting, c.s.p.cfg.TaskTimeout)
	defer stop()
	if o, ended := t.Watch(ctx); ended {
		c.conclude(t, o)
	}
}

// ofTask carries a request about a task of the same run and principal. Somebody
// else's answers as one that is not there.
func (c *call) ofTask() wire.Pending {
	t := c.s.run.Tasks.Of(c.m.P.TaskID, c.who().Principal, c.client, c.s.link.Live())
	if !c.s.tasked(c.client) || t == nil {
		return c.noTask()
	}
	return c.later(func() { c.askTask(t) })
}

func (c *call) noTask() wire.Pending {
	if !c.s.tasked(c.client) {
		return c.fail(wire.CodeMethodNotFound, c.unknownMethod())
	}
	return c.fail(wire.CodeInvalidParams, "Failed to retrieve task: Task not found")
}

// askTask asks about the task over the connection that it lives on. An end that is
// seen so steps the run before the client learns of it.
func (c *call) askTask(t *tasks.Task) {
	if !c.start(t.Conn) {
		c.unsent()
		return
	}
	m, err := c.await()
	c.seen.Answered(m, err)
	if err == nil && !t.IsOver() {
		c.sees(t, m)
	}
	c.reply(m, err, outcome.None)
}

// sees has an end of which an answer tells step the run.
func (c *call) sees(t *tasks.Task, m *wire.Message) {
	ctx, stop := context.WithTimeout(c.s.p.drain.lasting, c.s.p.cfg.CallTimeout)
	defer stop()
	if o := c.endOf(ctx, t, m); o != outcome.None {
		end(t, o, c.notifyChanged)
	}
}

// endOf is the outcome of a task that an answer about it tells of; none if it has
// not ended. What is wrong may be the request, which is the client's: after an error
// the proxy asks by itself.
func (c *call) endOf(ctx context.Context, t *tasks.Task, m *wire.Message) (o policy.Outcome) {
	switch asks := c.m.Method == "tasks/get" || c.m.Method == "tasks/result"; {
	case m.Kind == wire.Failure && !asks:
		return outcome.None
	case m.Kind == wire.Failure:
		o, _ = t.Ask(ctx)
	case c.m.Method == "tasks/result":
		return tasks.OutcomeOf(m.Bytes(m.Result))
	default:
		o, _ = t.Outcome(ctx, m.Bytes(m.Result))
	}
	return o
}

// outOfReach is what a client with a session reads of a stateless upstream's task, which it did
// not ask for and cannot ask about; nil where there is none.
func (c *call) outOfReach(m *wire.Message) []byte {
	if c.client.Follows(c.server) || c.client.Stateless() || c.server.TaskState(c.m, m) == nil {
		return nil
	}
	text := refusal.Called(c.Kind, c.Name) + " was begun, and goes on at the server as a task, which a client of this protocol revision cannot follow. " +
		"Its result will not be told; the lists may change when it ends."
	return wire.ResultAnswer(c.id(), append(wire.AppendString([]byte(`{"content":[{"type":"text","text":`), text), "}]}"...))
}

// maxTaskPages is how many pages of an upstream's tasks are read.
const maxTaskPages = 1000

// listTasks answers tasks/list with the run's own: those of all the upstream's
// pages, in one. A cursor may tell of others' tasks, too.
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
		own, failure, err := c.ownTasks(conn)
		switch {
		case c.isCancelled():
			c.answer(nil)
		case err != nil:
			c.unavailable(err)
		case failure != nil:
			c.give(failure)
		default:
			c.result(own)
		}
	})
}

// ownTasks reads the upstream's tasks, of which the run's own are left.
func (c *call) ownTasks(conn *bridge.Upstream) (result []byte, failure *wire.Message, err error) {
	defer c.seen.Waiting()()
	ctx, stop := context.WithTimeout(c.s.p.drain.lasting, c.s.p.cfg.CallTimeout)
	defer stop()
	own := []byte(`{"tasks":[`)
	var params, cursor []byte
	for range maxTaskPages {
		m, err := conn.Start(wire.Made(wire.RequestMessage(0, "tasks/list", params)), nil).Wait(ctx)
		if err != nil || m.Kind == wire.Failure {
			return nil, m, err
		}
		own = c.keepTasks(own, wire.Member(m.Bytes(m.Result), "tasks"), conn)
		next := wire.Member(m.Bytes(m.Result), "nextCursor")
		if len(next) == 0 || next[0] != '"' || bytes.Equal(next, cursor) || c.isCancelled() {
			break
		}
		cursor, params = next, append(append([]byte(`{"cursor":`), next...), '}')
	}
	return append(own, "]}"...), nil, nil
}

// keepTasks appends the run's own of a list to those that were found already.
func (c *call) keepTasks(own, list []byte, conn *bridge.Upstream) []byte {
	_ = wire.Elements(list, func(item []byte) error {
		id, _ := wire.Text(wire.Member(item, "taskId"))
		if c.s.run.Tasks.Of(id, c.who().Principal, c.client, conn) == nil {
			return nil
		}
		if own[len(own)-1] != '[' {
			own = append(own, ',')
		}
		own = append(own, item...)
		return nil
	})
	return own
}

// taskTold takes the upstream's notification of where a task stands: one of the
// run's is passed on, and its end steps the run before.
func (s *session) taskTold(conn *bridge.Upstream, m *wire.Message) {
	t := s.run.Tasks.On(conn, m.P.TaskID)
	if t == nil || t.Call.(*call).s != s {
		return
	}
	if !tasks.Ends(m.Bytes(m.Params)) || t.IsOver() {
		s.send(m.Raw, nil)
		return
	}
	s.p.lasts(func() {
		ctx, stop := context.WithTimeout(s.p.drain.lasting, s.p.cfg.CallTimeout)
		defer stop()
		if o, _ := t.Outcome(ctx, m.Bytes(m.Params)); o != outcome.None {
			end(t, o, func(moved ...run.Shift) {
				s.shown.TellOwn(moved...)
				s.run.Tell(s, moved...)
			})
		}
		s.send(m.Raw, nil)
	})
}
