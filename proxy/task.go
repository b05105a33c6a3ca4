package proxy

import (
	"context"
	"strconv"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// task is work that a call has begun upstream and that outlives the call: the end
// of it is the call's outcome (2025-11-25, basic/utilities/tasks, and the extension
// io.modelcontextprotocol/tasks of the modern era). A task whose outcome can move
// the run holds the turn that its call took, until the first one who sees its end,
// the proxy's own polling or a client's request, has stepped the run.
type task struct {
	id    string
	c     *call // that began it
	conn  Upstream
	owner wire.Principal
	every time.Duration // between polls
	done  chan struct{} // closed when its outcome was taken; guarded by the run's lock
	over  bool          // guarded by the run's lock
}

// Bounds of polling: as often as the server says, but for what would be no polling
// any more.
const (
	minPoll     = time.Second
	maxPoll     = time.Minute
	defaultPoll = 5 * time.Second
)

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
	if m == nil || m.Kind != wire.Result {
		return nil
	}
	var object []byte
	switch {
	case m.R.ResultType == wire.ResultTask:
		object = m.Bytes(m.Result)
	case m.R.Task.Present() && !m.R.Content.Present():
		object = m.Bytes(m.R.Task)
	}
	id, ok := wire.Text(memberOf(object, "taskId"))
	if !ok || id == "" {
		return nil
	}
	return &task{id: id, c: c, conn: c.s.link.live(), owner: c.who().Principal, every: pollInterval(object), done: make(chan struct{})}
}

// pollInterval is how often the server wants to be asked about a task.
func pollInterval(object []byte) time.Duration {
	for _, name := range []string{"pollInterval", "pollIntervalMs"} {
		if ms, err := strconv.ParseFloat(string(memberOf(object, name)), 64); err == nil {
			return min(max(time.Duration(ms)*time.Millisecond, minPoll), maxPoll)
		}
	}
	return defaultPoll
}

// enterTask makes a task one of the run's, and reports whether it holds the turn.
// ok is false where there are too many.
func (r *run) enterTask(t *task) (holds, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks == nil {
		r.tasks = make(map[string]*task)
	}
	if len(r.tasks) >= maxTasks {
		for id, old := range r.tasks {
			if old.over || r.holder != old.c {
				delete(r.tasks, id)
			}
		}
	}
	if len(r.tasks) >= maxTasks {
		return false, false
	}
	r.tasks[t.id] = t
	if r.holder != t.c {
		return false, true
	}
	r.running = t
	for _, c := range r.queue { // they are decided anew, and find the task
		close(c.turn)
	}
	r.queue = nil
	return true, true
}

// task is the run's task of an id, nil for one that is not the principal's, or not
// there.
func (r *run) task(id string, owner wire.Principal) *task {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tasks[id]; t != nil && t.owner == owner {
		return t
	}
	return nil
}

// runningTask is the id of the task that holds the turn, and the name of its tool.
func (r *run) runningTask() (id, tool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		return "", ""
	}
	return r.running.id, r.running.c.name
}

// end takes the outcome of a task, once, and steps the run by it. Of a task without
// the turn it changes nothing.
func (t *task) end(o policy.Outcome) shift {
	r := t.c.s.run
	r.mu.Lock()
	if t.over {
		r.mu.Unlock()
		return shift{}
	}
	t.over = true
	if r.running == t {
		r.running = nil
	}
	close(t.done)
	r.mu.Unlock()
	moved := t.c.settle(o)
	t.c.s.log.Info("task ended", t.c.about("task", clip(t.id), "tool", clip(t.c.name), "outcome", o.String())...)
	return moved
}

// dropTasks ends the tasks of a run that is over.
func (r *run) dropTasks() {
	r.mu.Lock()
	tasks := r.tasks
	r.tasks = nil
	r.mu.Unlock()
	for _, t := range tasks {
		t.end(policy.Unknown)
	}
}

// isOver reports whether the task's outcome was taken.
func (t *task) isOver() bool {
	r := t.c.s.run
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.over
}

// watch polls a task that holds the turn until its end. It belongs to the Proxy,
// which waits for it.
func (t *task) watch() {
	p := t.c.s.p
	defer p.ending.Done()
	ctx, stop := context.WithTimeout(p.drain.lasting, p.cfg.TaskTimeout)
	defer stop()
	for {
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
		if o := t.ask(ctx); o != noOutcome {
			t.conclude(o)
			return
		}
	}
}

// conclude ends the task without a request of a client that could be told first.
func (t *task) conclude(o policy.Outcome) { t.c.s.run.tell(t.end(o), nil) }

// ask asks the server about the task: its outcome, if it has ended.
func (t *task) ask(ctx context.Context) policy.Outcome {
	m, err := t.send(ctx, "tasks/get")
	if err != nil {
		if ctx.Err() != nil {
			return noOutcome // which is seen there
		}
		return policy.Unknown
	}
	if m.Kind == wire.Failure { // it has expired, or was never there
		return policy.Unknown
	}
	return t.outcome(ctx, m.Bytes(m.Result))
}

// outcome is what a task's state says became of it. The legacy era tells of an
// error by the result alone, which is asked for.
func (t *task) outcome(ctx context.Context, state []byte) policy.Outcome {
	status, _ := wire.Text(memberOf(state, "status"))
	switch readStatus(status) {
	case taskFailed:
		return policy.Error
	case taskCancelled:
		return policy.Unknown
	case taskCompleted:
		if t.conn.Era() == wire.Modern {
			return outcomeOf(memberOf(state, "result"))
		}
		m, err := t.send(ctx, "tasks/result")
		if err != nil {
			return policy.Unknown
		}
		return resultOutcome(m)
	}
	return noOutcome
}

// resultOutcome is what an answer to tasks/result says became of a task.
func resultOutcome(m *wire.Message) policy.Outcome {
	if m.Kind == wire.Failure {
		return policy.Error
	}
	return outcomeOf(m.Bytes(m.Result))
}

func outcomeOf(result []byte) policy.Outcome {
	if string(memberOf(result, "isError")) == "true" {
		return policy.Error
	}
	return policy.Success
}

// send asks the server something about the task.
func (t *task) send(ctx context.Context, method string) (*wire.Message, error) {
	ctx, stop := context.WithTimeout(ctx, t.c.s.p.cfg.CallTimeout)
	defer stop()
	params := wire.AppendString([]byte(`{"taskId":`), t.id)
	if t.conn.Era() == wire.Modern {
		names, values := t.c.meta()
		params = append(append(params, `,"_meta":`...), object(names, values)...)
	}
	m := made(wire.RequestMessage(0, method, append(params, '}')))
	if m == nil {
		return nil, errNoObject
	}
	return t.conn.Start(m, nil).Wait(ctx)
}

// meta are the members of _meta by which a call's client is introduced to a
// modern upstream.
func (c *call) meta() (names []string, values [][]byte) {
	if !c.modern() {
		return c.s.introduction()
	}
	names = []string{wire.MetaVersion, wire.MetaCapabilities}
	values = [][]byte{[]byte(`"` + wire.ModernRevision + `"`), c.m.Bytes(c.m.P.Modern.Capabilities)}
	if info := c.m.Bytes(c.m.P.Modern.ClientInfo); info != nil {
		names, values = append(names, wire.MetaClientInfo), append(values, info)
	}
	return names, values
}
