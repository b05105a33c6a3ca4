package proxy

import (
	"context"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// tasksExtension is the modern era's capability of tasks.
const tasksExtension = "io.modelcontextprotocol/tasks"

// started takes an answer that stands for a task, and reports whether it is one:
// then the call's turn is the task's.
func (c *call) started(m *wire.Message) bool {
	if c.place.shadow {
		return false
	}
	t := c.taskIn(m)
	if t == nil || t.conn == nil {
		return false
	}
	holds, ok := c.s.run.enterTask(t)
	if !ok {
		c.s.log.Warn("a task is not followed: the run has too many", c.about("tool", clip(c.name))...)
		return false
	}
	c.s.log.Info("task begun", c.about("task", clip(t.id), "tool", clip(c.name), "holds the turn", holds)...)
	if holds {
		c.s.p.ending.Add(1)
		go t.watch()
	}
	return holds
}

// ofTask carries a request about a task of the same run and principal. Somebody
// else's answers as one that is not there.
func (c *call) ofTask() wire.Pending {
	t := c.s.run.task(c.m.P.TaskID, c.who().Principal)
	if !c.s.tasked(c.era) || t == nil {
		return c.noTask()
	}
	return c.later(func() { c.askTask(t) })
}

func (c *call) noTask() wire.Pending {
	if !c.s.tasked(c.era) {
		return c.fail(wire.CodeMethodNotFound, unknownMethod(c.m.Method))
	}
	return c.fail(wire.CodeInvalidParams, "Failed to retrieve task: Task not found")
}

// tasked reports whether the upstream offers tasks, in this era.
func (s *session) tasked(era wire.Era) bool {
	h := s.hello.Load()
	conn := s.link.live()
	return h.tasks && (conn == nil || conn.Era() == era)
}

// askTask asks about the task over the connection that it lives on. An end that is
// seen so steps the run before the client learns of it.
func (c *call) askTask(t *task) {
	if !c.start(t.conn) {
		c.unsent()
		return
	}
	m, err := c.await()
	c.landing(m, err)
	if err == nil && !t.isOver() {
		ctx, stop := context.WithTimeout(c.s.p.drain.lasting, c.s.p.cfg.CallTimeout)
		if o := c.endOf(ctx, t, m); o != noOutcome {
			c.notifyChanged(t.end(o))
		}
		stop()
	}
	switch {
	case err == nil:
		c.give(m)
	case c.isCancelled():
		c.answer(nil)
	default:
		c.unavailable(err)
	}
}

// endOf is the outcome of a task that an answer about it tells of; none if it has
// not ended.
func (c *call) endOf(ctx context.Context, t *task, m *wire.Message) policy.Outcome {
	switch {
	case c.m.Method == "tasks/result":
		if m.Kind == wire.Failure && m.ErrorCode == wire.CodeInvalidParams {
			return policy.Unknown // it has expired
		}
		return resultOutcome(m)
	case m.Kind == wire.Failure:
		if c.m.Method == "tasks/get" {
			return policy.Unknown
		}
		return noOutcome
	}
	return t.outcome(ctx, m.Bytes(m.Result))
}

// listTasks carries tasks/list, of whose answer the run's own tasks are left.
func (c *call) listTasks() wire.Pending {
	if !c.s.tasked(c.era) {
		return c.noTask()
	}
	return c.later(func() {
		conn, err := c.connect()
		if err != nil {
			c.unavailable(err)
			return
		}
		if !c.start(conn) {
			c.unsent()
			return
		}
		m, err := c.await()
		c.landing(m, err)
		switch {
		case err == nil && m.Kind == wire.Result:
			c.answer(c.withID(reread(c.ownTasks(m), m)))
		case err == nil:
			c.give(m)
		case c.isCancelled():
			c.answer(nil)
		default:
			c.unavailable(err)
		}
	})
}

// ownTasks is an answer to tasks/list without the tasks of others.
func (c *call) ownTasks(m *wire.Message) []byte {
	var edits []wire.Edit
	result := m.Bytes(m.Result)
	_ = wire.Members(result, func(name string, at wire.Span) error {
		if name == "tasks" {
			span := wire.Span{Start: at.Start + m.Result.Start, End: at.End + m.Result.Start}
			edits = append(edits, wire.Edit{At: span, With: c.keepTasks(result[at.Start:at.End])})
		}
		return nil
	})
	return wire.Splice(m.Raw, edits...)
}

func (c *call) keepTasks(list []byte) []byte {
	out := []byte{'['}
	_ = wire.Elements(list, func(item []byte) error {
		id, _ := wire.Text(memberOf(item, "taskId"))
		if c.s.run.task(id, c.who().Principal) == nil {
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, item...)
		return nil
	})
	return append(out, ']')
}

// taskTold takes the upstream's notification of where a task stands: one of the
// run's is passed on, and its end steps the run before.
func (s *session) taskTold(m *wire.Message) {
	s.run.mu.Lock()
	t := s.run.tasks[m.P.TaskID]
	s.run.mu.Unlock()
	if t == nil || t.c.s != s {
		return
	}
	status, _ := wire.Text(memberOf(m.Bytes(m.Params), "status"))
	if readStatus(status) == taskWorking || t.isOver() {
		s.send(m.Raw, nil)
		return
	}
	s.p.ending.Add(1)
	go func() {
		defer s.p.ending.Done()
		ctx, stop := context.WithTimeout(s.p.drain.lasting, s.p.cfg.CallTimeout)
		defer stop()
		if o := t.outcome(ctx, m.Bytes(m.Params)); o != noOutcome {
			moved := t.end(o)
			s.tellOwn(moved)
			s.run.tell(moved, s)
		}
		s.send(m.Raw, nil)
	}()
}
