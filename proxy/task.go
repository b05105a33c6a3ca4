package proxy

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// task is work that a call has begun upstream and that outlives the call: the end
// of it is the call's outcome (2025-11-25, basic/utilities/tasks, and the extension
// io.modelcontextprotocol/tasks of 2026-07-28). A task whose outcome can move
// the run holds the turn that its call took, until the first one who sees its end,
// the proxy's own polling or a client's request, has stepped the run.
type task struct {
	id    string
	c     *call // what is left of the call that began it
	conn  *bridge.Upstream
	owner wire.Principal
	meta  []byte        // of what the proxy asks about it; nil: none
	every time.Duration // between polls
	done  chan struct{} // closed when its outcome has stepped the run
	over  bool          // it has an outcome, or none is wanted; guarded by the run's lock
}

// Bounds of polling: as often as the server says, but for what would be no polling
// any more.
const (
	minPoll     = time.Second
	maxPoll     = time.Minute
	defaultPoll = 5 * time.Second
)

// maxMissed is how many polls in a row may come to nothing.
const maxMissed = 5

// maxTasks is how many tasks of a run are remembered; beyond it those that are over
// are forgotten, and no new one is let in while none is.
const maxTasks = 1000

// taskStatus is where a task stands.
type taskStatus uint8

const (
	taskWorking taskStatus = iota // or any other status that is no end
	taskCompleted
	taskFailed
	taskCancelled
)

func readStatus(text string) taskStatus {
	switch text {
	case "completed":
		return taskCompleted
	case "failed":
		return taskFailed
	case "cancelled":
		return taskCancelled
	}
	return taskWorking
}

// taskIn reads the task that an answer to a call stands for; nil: it is none.
func (c *call) taskIn(m *wire.Message) *task {
	state := c.server.TaskState(c.m, m)
	if state == nil {
		return nil
	}
	id, _ := wire.Text(wire.Member(state, "taskId"))
	t := &task{id: id, c: c.remains(), conn: c.conn, owner: c.who().Principal, every: pollInterval(state), done: make(chan struct{}),
		meta: c.introduction().Meta(c.conn.Server)}
	return t
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

// recordEnd records what became of the task, as another outcome of the decision
// that let its call go.
func (c *call) recordEnd() {
	if c.seen == nil {
		return
	}
	op := &c.seen.Op
	op.Message, op.Named, op.Kind, op.Name = c.m, true, c.Kind, c.Name
	c.seen.Ended(c.who())
}

// pollInterval is how often the server wants to be asked about a task. One that
// forgets it sooner is asked before.
func pollInterval(object []byte) time.Duration {
	every := defaultPoll
	if asked, ok := milliseconds(object, "pollInterval", "pollIntervalMs"); ok {
		every = asked
	}
	if lives, ok := milliseconds(object, "ttl", "ttlMs"); ok {
		every = min(every, lives/2)
	}
	return min(max(every, minPoll), maxPoll)
}

// milliseconds reads a duration that has one of the names.
func milliseconds(object []byte, names ...string) (time.Duration, bool) {
	for _, name := range names {
		if ms, err := strconv.ParseFloat(string(wire.Member(object, name)), 64); err == nil {
			return time.Duration(min(max(ms, 0), maxMilliseconds)) * time.Millisecond, true
		}
	}
	return 0, false
}

// maxMilliseconds is more than anybody waits for.
const maxMilliseconds = 1e12

// enterTask makes a task one of the run's, and reports whether it has the turn
// that the call had which began it. One that took the id of the task that has
// it would hide that: it is none.
func (r *liveRun) enterTask(t *task, began *call) (holds bool) {
	t.c.Tag = t
	over := false
	r.does(func(core *run.Run, _ time.Time) (e run.Effects) {
		running := r.runningLocked()
		if running != nil && running.at() == t.at() {
			return e
		}
		if r.tasks == nil {
			r.tasks = make(map[taskAt]*task)
		}
		if len(r.tasks) >= maxTasks {
			maps.DeleteFunc(r.tasks, func(_ taskAt, old *task) bool { return old != running })
		}
		r.tasks[t.at()] = t
		holds, e = core.HandOver(&began.Call, &t.c.Call)
		over, t.over = !holds, !holds
		return e
	})
	if over {
		close(t.done)
	}
	return holds
}

// runningLocked is the task that has the turn, nil for none.
func (r *liveRun) runningLocked() (t *task) {
	c, isTask := r.core.Holder()
	if isTask {
		t = c.Tag.(*task)
	}
	return t
}

// taskAt tells a run's tasks apart: servers number them, and sessions on one run may have a
// server's process each.
type taskAt struct {
	conn *bridge.Upstream
	id   string
}

func (t *task) at() taskAt { return taskAt{t.conn, t.id} }

// task is the run's task of an id that is the principal's, and one that the client can
// follow: that of the connection given, or else the only one on any. Nil: there is none.
func (r *liveRun) task(id string, owner wire.Principal, by bridge.Client, conn *bridge.Upstream) *task {
	mine := func(t *task) bool { return t != nil && t.owner == owner && by.Follows(t.conn.Server) }
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tasks[taskAt{conn, id}]; mine(t) {
		return t
	}
	var only *task
	for at, t := range r.tasks {
		if at.id != id || !mine(t) {
			continue
		}
		if only != nil {
			return nil
		}
		only = t
	}
	return only
}

// turn is the call, or the task, that has the turn.
func (r *liveRun) turn() (c *call, t *task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	holder, isTask := r.core.Holder()
	switch {
	case isTask:
		t = holder.Tag.(*task)
	case holder != nil:
		c = holder.Tag.(*call)
	}
	return c, t
}

// runningTask is the id of the task that has the turn, and the name of its tool.
func (r *liveRun) runningTask() (id, tool string) {
	if _, t := r.turn(); t != nil {
		return t.id, t.c.Name
	}
	return "", ""
}

// end takes the outcome of a task, once: it steps the run and has tell told what
// that changed. Whoever comes second waits until that is done, so that no client
// learns of an end that has not stepped the run.
func (t *task) end(o policy.Outcome, tell func(...run.Shift)) {
	if !t.takes() {
		<-t.done
		tell()
		return
	}
	moved := t.c.settle(o)
	t.c.recordEnd()
	moved, passed := run.Join(moved, t.c.passOn(o))
	t.c.s.log.Info("task ended", t.c.about("task", nameOf(t.id), "tool", wire.Clip(t.c.Name), "outcome", o.String())...)
	tell(moved, passed)
	close(t.done)
}

// takes reports whether it is the first to take the task's outcome.
func (t *task) takes() bool {
	r := t.c.s.run
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !t.over
	t.over = true
	return first
}

// dropTasks ends the tasks of a run that is over.
func (r *liveRun) dropTasks() {
	r.mu.Lock()
	tasks := r.tasks
	r.tasks = nil
	r.mu.Unlock()
	for _, t := range tasks {
		t.end(policy.Unknown, func(moved ...run.Shift) { r.tell(nil, moved...) })
	}
}

// isOver reports whether the task's outcome has stepped the run.
func (t *task) isOver() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// watch polls a task that holds the turn until its end. It belongs to the Proxy,
// which waits for it.
func (t *task) watch() {
	p := t.c.s.p
	ctx, stop := context.WithTimeout(p.drain.lasting, p.cfg.TaskTimeout)
	defer stop()
	for missed := 0; missed < maxMissed; {
		timer := time.NewTimer(t.every)
		select {
		case <-timer.C:
		case <-t.done:
			timer.Stop()
			return
		case <-t.conn.Done():
			timer.Stop()
			t.conclude(policy.Unknown)
			return
		case <-ctx.Done():
			timer.Stop()
			t.conclude(policy.Unknown)
			return
		}
		o, err := t.ask(ctx)
		if missed++; err == nil {
			missed = 0
		}
		if o != noOutcome {
			t.conclude(o)
			return
		}
	}
	t.conclude(policy.Unknown)
}

// conclude ends the task without a request of a client that could be told first.
func (t *task) conclude(o policy.Outcome) {
	r := t.c.s.run
	t.end(o, func(moved ...run.Shift) { r.tell(nil, moved...) })
}

// ask asks the server about the task: its outcome, if it has ended. An error is one
// of asking, and says nothing of the task.
func (t *task) ask(ctx context.Context) (policy.Outcome, error) {
	m, err := t.send(ctx, "tasks/get")
	switch {
	case err != nil:
		return noOutcome, err
	case m.Kind == wire.Result:
		return t.outcome(ctx, m.Bytes(m.Result))
	case m.ErrorCode == wire.CodeInvalidParams: // it has expired, or was never there
		return policy.Unknown, nil
	}
	return noOutcome, errNoState
}

var errNoState = errors.New("the server does not say where the task stands")

// outcome is what a task's state says became of it. One with sessions tells of an
// error by the result alone, which is asked for.
func (t *task) outcome(ctx context.Context, state []byte) (policy.Outcome, error) {
	status, _ := wire.Text(wire.Member(state, "status"))
	switch readStatus(status) {
	case taskFailed:
		return policy.Error, nil
	case taskCancelled:
		return policy.Unknown, nil
	case taskCompleted:
		if result, ok := t.conn.Server.TaskResult(state); ok {
			return outcomeOf(result), nil
		}
		m, err := t.send(ctx, "tasks/result")
		switch {
		case err != nil:
			return noOutcome, err
		case m.Kind == wire.Result:
			return outcomeOf(m.Bytes(m.Result)), nil
		case m.ErrorCode == wire.CodeInvalidParams: // it has expired
			return policy.Unknown, nil
		}
		return policy.Error, nil
	}
	return noOutcome, nil
}

// outcomeOf is the outcome that a task's result tells of. One that is no object, that two
// readers could read differently, or that is no result but looks like another task or a
// question, tells nothing.
func outcomeOf(result []byte) policy.Outcome {
	m := wire.Made(wire.ResultAnswer([]byte("0"), result))
	if m == nil || m.Raw[m.Result.Start] != '{' || m.R.ResultTypeAt.Present() && m.R.ResultType != wire.ResultComplete ||
		m.R.Task.Present() && !m.R.Content.Present() {
		return policy.Unknown
	}
	if m.R.IsError {
		return policy.Error
	}
	return policy.Success
}

// send asks the server something about the task.
func (t *task) send(ctx context.Context, method string) (*wire.Message, error) {
	ctx, stop := context.WithTimeout(ctx, t.c.s.p.cfg.CallTimeout)
	defer stop()
	params := wire.AppendString([]byte(`{"taskId":`), t.id)
	if t.meta != nil {
		params = append(append(params, `,"_meta":`...), t.meta...)
	}
	m := wire.Made(wire.RequestMessage(0, method, append(params, '}')))
	if m == nil {
		return nil, errNoObject
	}
	return t.conn.Start(m, nil).Wait(ctx)
}
