package runs

import (
	"context"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/tasks"
)

// Tasks are those that outlive the proxy: of a server that does.
type Tasks struct {
	Timeout time.Duration // from a task's beginning to giving it up
	// Patience is how long an answer about one may take.
	Patience time.Duration
	// GoOn asks about a task that was begun before the proxy was started anew, until the task ends or a time is there, on a
	// goroutine of its own; known is called when the server has said that it knows the task.
	GoOn func(t *tasks.Task, k *tasks.Kept, until time.Time, known func())
}

// HandOver gives a task the turn of the call that began it, whose remains it has, and reports
// whether its outcome is wanted: else it changes nothing. kept waits until the client may hear of the
// task, since it goes on after a restart. Its error is an [ErrUnwritten], or a [tasks.ErrTwice]: then nobody follows the
// task, and the call has ended, with an unknown outcome.
func (r *Run) HandOver(t *tasks.Task, began, remains *run.Call) (wanted bool, kept func() error) {
	remains.Tag = t
	var w written
	var twice error
	r.Do(func(core *run.Run, now time.Time) (e run.Effects) {
		_, running := r.holderLocked()
		twice = r.Tasks.Enter(t, running, func() bool {
			wanted, e = core.HandOver(began, remains)
			w = r.keepLocked(t, remains)
			return wanted
		})
		if !wanted && twice == nil {
			core.Leave(remains, now) // with what it has reserved
		}
		return e
	})
	if twice != nil {
		t.End(run.End{Outcome: policy.Unknown}, nil) // it was sent
	}
	return wanted || twice != nil, func() error {
		if w.ticket != nil && (!r.of.awaits(w) || w.ticket.Err() != nil) {
			return ErrUnwritten
		}
		return twice
	}
}

// keepLocked has it kept what it takes to go on with a task that has the turn, where that can be.
func (r *Run) keepLocked(t *tasks.Task, remains *run.Call) (w written) {
	if r.kept == nil || r.of.cfg.Tasks == nil {
		return w
	}
	left := r.core.Left(remains)
	if left == nil {
		return w
	}
	text, err := t.Keep(left)
	if err == nil {
		w.ticket, err = r.kept.KeepTask(remains.Begun(), text)
	}
	if err != nil {
		r.of.cfg.Log.Warn("a task is not kept: if the proxy ends before the task does, its outcome is unknown", "run", r.Name, "task", NameOf(t.ID), "error", err)
	}
	return w
}

// left is what is left of a call whose task goes on: it has the turn of a run that was read.
type left struct {
	r    *Run
	call *run.Call
}

// Ended implements [tasks.Call]: what becomes of the outcome has the order that it has for all calls.
func (l *left) Ended(t *tasks.Task, end run.End, tell func(run.Shifts)) {
	r := l.r
	e, moved, err := r.Settle(l.call, end) // what is not durable yet is told when it is
	if err != nil && !r.isShut() {
		r.of.cfg.Log.Error("what became of a task of before the start", "run", r.Name, "task", NameOf(t.ID), "error", err)
	}
	outcome := end.Outcome.String()
	if a := l.call.Verdict.Alternative; e.Outcome != 0 {
		outcome = a.OutcomeName(e.Outcome)
	}
	if e.Step.Changed {
		from, to := e.By.StateName(e.Step.From.State), e.By.StateName(e.Step.Entered)
		r.of.cfg.Telemetry.Stepped(from, to, outcome)
		r.of.cfg.Log.Info("transition", "run", r.Name, "from", from, "to", to, l.call.Kind.String(), l.call.Name, "outcome", outcome,
			"complete", e.Step.Terminal, "rule", l.call.Verdict.Rule.String())
	}
	shifts := run.Join(moved, r.Pass(l.call))
	r.Tasks.Came(false) // until then the run stays in memory
	r.of.cfg.Log.Info("task ended", "run", r.Name, "task", NameOf(t.ID), "tool", wire.Clip(t.Tool), "outcome", outcome)
	r.TellBy(tell, shifts)
}

// lasting are those of a run's tasks that go on: what is kept of them by the numbers of the entries by which their calls
// began.
func (g *Registry) lasting(kept *durable.Loaded, now time.Time) (all map[uint64]*tasks.Kept, calls map[uint64]*run.Left) {
	if g.cfg.Tasks == nil {
		return nil, nil
	}
	all, calls = make(map[uint64]*tasks.Kept), make(map[uint64]*run.Left)
	for begun, text := range kept.Tasks() {
		k, err := tasks.Read(text)
		if err != nil {
			g.cfg.Log.Warn("what is kept of a task cannot be read: its outcome is unknown", "run", kept.ID(), "error", err)
		} else if now.Before(k.Until(g.cfg.Tasks.Timeout, now)) {
			all[begun], calls[begun] = k, k.Left
		}
	}
	return all, calls
}

// goOn has the task that has the turn of a run that was read be known by its id, and returns what asks about it; nil:
// none has.
func (r *Run) goOn(all map[uint64]*tasks.Kept, now time.Time) (ask func()) {
	holder, isTask := r.core.Holder()
	if !isTask {
		return nil
	}
	k := all[holder.Begun()]
	t := k.Task(&left{r, holder}, holder.Name, r.of.cfg.Tasks.Patience)
	holder.Tag = t
	r.Tasks.Await(t)
	r.of.enterTask(t, r)
	r.of.cfg.Log.Info("a task goes on", "run", r.Name, "task", NameOf(t.ID), "tool", wire.Clip(t.Tool))
	return func() {
		r.of.cfg.Tasks.GoOn(t, k, k.Until(r.of.cfg.Tasks.Timeout, now), func() { r.Tasks.Came(true) })
	}
}

// enterTask has the run of a task be found by its id, where clients may ask by that alone.
func (g *Registry) enterTask(t *tasks.Task, r *Run) {
	if r.Key.Kind == Handle && !t.Owner.Shared() && (t.Owner.Known() || Unguessable(t.ID)) {
		g.ByTask.Enter(t, r)
	}
}

// EnterTask has the run of a task be found by its id, where clients may ask by that alone.
func (r *Run) EnterTask(t *tasks.Task) {
	r.of.enterTask(t, r)
	if r.Ended() { // by then: what forgot its tasks did not see this one
		r.of.ByTask.Forget(r)
	}
}

// ReadTasks reads the runs whose tasks go on, but for those that another process has.
func (g *Registry) ReadTasks(ctx context.Context) error {
	if g.cfg.Tasks == nil {
		return nil
	}
	keys, err := g.cfg.Store.WithTasks(ctx)
	if err != nil {
		return err
	}
	for _, key := range keys {
		at := runID{kindOf(key.Kind), string(key.Hash[:])}
		if at.kind != Default && (at.kind != Process || g.isOwn(at)) {
			g.mu.Lock()
			delete(g.away, at) // who had it may have gone
			g.mu.Unlock()
			if r, _ := g.restore(at); r != nil { // what is wrong with one is logged
				r.used.Store(int64(deadline.Now()))
			}
		}
	}
	return nil
}
