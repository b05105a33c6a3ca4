// Package tasks is work that calls have begun upstream and that outlives them: the end of it is
// the call's outcome (2025-11-25, basic/utilities/tasks, and the extension
// io.modelcontextprotocol/tasks of 2026-07-28).
package tasks

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Task is one task. Where its outcome can move the run it holds the turn that its call took,
// until the first one who sees its end, the proxy's own polling or a client's request, has
// stepped the run. It is safe for concurrent use.
type Task struct {
	ID       string
	Owner    wire.Principal
	Tool     string           // what was called; set before anybody knows the task
	Conn     *bridge.Upstream // on which it lives; nil: see [Task.GoOn]
	Call     Call             // what is left of the call that began it; likewise
	began    time.Time
	created  string              // when, as the server says; "": it does not
	by       bridge.Introduction // of the client, in what the proxy asks about it
	patience time.Duration       // for an answer about it
	every    time.Duration       // between polls
	again    bool                // it was begun before the proxy was started anew
	kept     atomic.Bool         // it is polled on when the proxy has been started anew
	known    chan struct{}       // closed when the server has said that it is there
	done     chan struct{}       // closed when its outcome has stepped the run
	left     chan struct{}       // closed when its run goes on elsewhere, and it is asked about there
	over     atomic.Bool         // it has an outcome, or none is wanted
}

// Call is what is left of a call that has begun a task.
type Call interface {
	// Ended takes the outcome of the task, once: it is the call's. It has tell, or, where that is
	// nil, all whom the call's run has, told what that changed.
	Ended(t *Task, end run.End, tell func(run.Shifts))
}

// By is what is left of the call that began the task; of no task it is nothing.
func (t *Task) By() (c Call) {
	if t != nil {
		c = t.Call
	}
	return c
}

// New reads a task from its state, as the upstream of a connection tells it. by is how its client
// is introduced in what is asked about it, and patience how long an answer may take.
func New(state []byte, conn *bridge.Upstream, owner wire.Principal, by bridge.Introduction, patience time.Duration) *Task {
	id, _ := wire.Text(wire.Member(state, "taskId"))
	by.Capabilities, by.Info = bytes.Clone(by.Capabilities), bytes.Clone(by.Info) // of a message, which may be large
	t := &Task{ID: id, Owner: owner, Conn: conn, began: time.Now(), created: created(state), by: by, patience: patience, every: pollInterval(state),
		known: make(chan struct{}), done: make(chan struct{}), left: make(chan struct{})}
	close(t.known)
	return t
}

// created is when a task began by its state, "" where that does not say.
func created(state []byte) string {
	text, _ := wire.Text(wire.Member(state, "createdAt"))
	return text
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
	const most = 1e12 // more than anybody waits for
	for _, name := range names {
		if ms, err := strconv.ParseFloat(string(wire.Member(object, name)), 64); err == nil {
			return time.Duration(min(max(ms, 0), most)) * time.Millisecond, true
		}
	}
	return 0, false
}

// End has the call take its outcome, once. Whoever comes second waits until that is done, so
// that no client learns of an end that has not stepped the run.
func (t *Task) End(end run.End, tell func(run.Shifts)) {
	if !t.over.Swap(true) {
		t.Call.Ended(t, end, tell)
		close(t.done)
		return
	}
	<-t.done
	if tell != nil {
		tell(run.Shifts{})
	}
}

// waive ends a task that nobody knows yet, and whose outcome is not wanted.
func (t *Task) waive() {
	t.over.Store(true)
	close(t.done)
}

// isOver reports whether the task's outcome has stepped the run.
func (t *Task) isOver() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Watch polls the task until it has ended, or its run goes on elsewhere. When ctx or the task's connection ends, it ends with
// an unknown outcome; but one that is kept goes on where ctx was cancelled: the proxy ends.
func (t *Task) Watch(ctx context.Context) {
	for missed := 0; missed < maxMissed; {
		if !t.pause(ctx, t.Conn.Done()) {
			return
		}
		end, err := t.ask(ctx)
		if missed++; err == nil {
			missed = 0
		}
		if end.Outcome != 0 {
			t.End(end, nil)
			return
		}
	}
	t.Lost(ctx)
}

// pause waits for the next poll, and reports false where there is to be none.
func (t *Task) pause(ctx context.Context, lost <-chan struct{}) bool {
	timer := time.NewTimer(t.every)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.done:
		return false
	case <-t.left:
		return false
	case <-lost:
	case <-ctx.Done():
	}
	t.Lost(ctx)
	return false
}

// Lost ends a task that nobody asks about any more, with an unknown outcome; but one that is kept goes on where ctx was
// cancelled: the proxy ends. So does one whose run goes on elsewhere: its connection ends with that.
func (t *Task) Lost(ctx context.Context) {
	select {
	case <-t.left:
		return
	default:
	}
	if ctx.Err() != context.Canceled || !t.kept.Load() {
		t.End(run.End{Outcome: policy.Unknown}, nil)
	}
}

// leaveLocked has nobody ask about the task any more, whose run goes on elsewhere. The table's lock is held.
func (t *Task) leaveLocked() {
	select {
	case <-t.left:
	default:
		close(t.left)
	}
}

// Answered takes what the server has answered to a client's request about the task: an end of
// which that tells is taken before the client learns of it. What is wrong may be the request, which
// is the client's: after an error the server is asked anew. [ErrGone]: the answer is about another task, and no client's.
func (t *Task) Answered(ctx context.Context, method string, m *wire.Message, tell func(run.Shifts)) error {
	asks, told := method == "tasks/get" || method == "tasks/result", method != "tasks/result" && m.Kind == wire.Result
	switch {
	case told && t.isAnother(m.Bytes(m.Result)):
		return t.gone(ctx, tell)
	case t.isOver() || m.Kind == wire.Failure && !asks:
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, t.patience)
	defer stop()
	var end run.End
	switch {
	case m.Kind == wire.Failure:
		end, _ = t.ask(ctx)
	case method == "tasks/result":
		end = endOf(m.Bytes(m.Result))
	default:
		end, _ = t.outcome(ctx, m.Bytes(m.Result))
	}
	if end.Outcome != 0 {
		t.End(end, tell)
	}
	return nil
}

// Ends reports whether a state that the server has told unasked is an end that nobody has seen.
func (t *Task) Ends(state []byte) bool {
	switch status(state) {
	case "completed", "failed", "cancelled":
		return !t.isOver()
	}
	return false
}

// Told takes that end.
func (t *Task) Told(ctx context.Context, state []byte, tell func(run.Shifts)) {
	ctx, stop := context.WithTimeout(ctx, t.patience)
	defer stop()
	if end, _ := t.outcome(ctx, state); end.Outcome != 0 {
		t.End(end, tell)
	}
}

var errNoState = errors.New("the server does not say where the task stands")

// ask asks the server about the task: how it has ended, without an outcome if it has not. An
// error is one of asking, and says nothing of the task.
func (t *Task) ask(ctx context.Context) (end run.End, err error) {
	state, err := t.state(ctx, t.Conn)
	switch {
	case err != nil:
		return end, err
	case state == nil:
		return run.End{Outcome: policy.Unknown}, nil
	}
	return t.outcome(ctx, state)
}

// state asks the server over a connection where the task stands; nil: it has expired, or was never there.
func (t *Task) state(ctx context.Context, conn *bridge.Upstream) ([]byte, error) {
	m, err := t.send(ctx, conn, "tasks/get")
	switch {
	case err != nil:
		return nil, err
	case m.Kind == wire.Result:
		state := m.Bytes(m.Result)
		if t.isAnother(state) {
			return nil, nil
		}
		return state, nil
	case m.ErrorCode == wire.CodeInvalidParams:
		return nil, nil
	}
	return nil, errNoState
}

// outcome is how a task has ended by its state, without an outcome if it has not. One with
// sessions tells of an error by the result alone, which is asked for.
func (t *Task) outcome(ctx context.Context, state []byte) (end run.End, err error) {
	switch status(state) {
	case "failed":
		return run.End{Outcome: policy.Error}, nil
	case "cancelled":
		return run.End{Outcome: policy.Unknown}, nil
	case "completed":
		if result, ok := t.Conn.Server.TaskResult(state); ok {
			return endOf(result), nil
		}
		m, err := t.send(ctx, t.Conn, "tasks/result")
		switch {
		case err != nil:
			return end, err
		case m.Kind == wire.Result:
			return endOf(m.Bytes(m.Result)), nil
		case m.ErrorCode == wire.CodeInvalidParams: // it has expired
			return run.End{Outcome: policy.Unknown}, nil
		}
		return run.End{Outcome: policy.Error}, nil
	}
	return end, nil
}

func status(state []byte) string {
	text, _ := wire.Text(wire.Member(state, "status"))
	return text
}

// endOf is the end that a task's result tells of. One that is no object, that two
// readers could read differently, or that is no result but looks like another task or a
// question, tells nothing.
func endOf(result []byte) run.End {
	m := wire.Made(wire.ResultAnswer([]byte("0"), result))
	if m == nil || m.Raw[m.Result.Start] != '{' || m.R.ResultTypeAt.Present() && m.R.ResultType != wire.ResultComplete ||
		m.R.Task.Present() && !m.R.Content.Present() {
		return run.End{Outcome: policy.Unknown}
	}
	if m.R.IsError {
		return run.End{Outcome: policy.Error, Result: result}
	}
	return run.End{Outcome: policy.Success, Result: result}
}

// errNoMessage is why a task is not asked about: what would be asked is no message.
var errNoMessage = errors.New("its id cannot be said")

// send asks the server something about the task over a connection.
func (t *Task) send(ctx context.Context, conn *bridge.Upstream, method string) (*wire.Message, error) {
	ctx, stop := context.WithTimeout(ctx, t.patience)
	defer stop()
	params := wire.AppendString([]byte(`{"taskId":`), t.ID)
	if meta := t.by.Meta(conn.Server); meta != nil {
		params = append(append(params, `,"_meta":`...), meta...)
	}
	m := wire.Made(wire.RequestMessage(0, method, append(params, '}')))
	if m == nil {
		return nil, errNoMessage
	}
	return conn.Start(m, nil).Wait(ctx)
}
