package tasks

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Table is the tasks of a run. Its zero value has none. It is safe for concurrent use; its lock is
// taken under the run's.
type Table struct {
	mu     sync.Mutex // guards what follows
	all    map[at]*Task
	coming *Task // of before the proxy was started anew; nil: none, or it is known by now
}

// Await has a task be one of the run's once it is known that the server has it still.
func (ts *Table) Await(t *Task) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.coming = t
}

// Came has the awaited task be one of the run's, or nothing be awaited any more.
func (ts *Table) Came(there bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.coming; there && t != nil {
		if ts.all == nil {
			ts.all = make(map[at]*Task)
		}
		ts.all[at{t.Conn, t.ID}] = t
	}
	ts.coming = nil
}

// Coming is the task of an id that is the principal's and awaited; nil: there is none.
func (ts *Table) Coming(id string, owner wire.Principal) *Task {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.coming; t != nil && t.ID == id && t.Owner == owner {
		return t
	}
	return nil
}

// at tells a run's tasks apart: servers number them, and sessions on one run may have a
// server's process each.
type at struct {
	conn *bridge.Upstream
	id   string
}

// maxTasks is how many tasks of a run are remembered; beyond it those that are over
// are forgotten, and no new one is let in while none is.
const maxTasks = 1000

// ErrTwice is for a task that has the id of the one that has the turn: who asks about it would be told of that.
var ErrTwice = errors.New("it goes on as a task, under the id of another one of the run that has not ended")

// Enter makes a task one of the run's, and waives its outcome unless handOver gives it the turn.
// running is the task that has the turn, nil for none: one that took the id of that would hide it,
// and is none of the run's. handOver is called for that as well, and the error is [ErrTwice].
func (ts *Table) Enter(t, running *Task, handOver func() bool) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if running != nil && running.ID == t.ID && (running.again || ts.all[at{t.Conn, t.ID}] == running) {
		handOver()
		return ErrTwice
	}
	if !handOver() {
		t.waive()
	}
	if ts.all == nil {
		ts.all = make(map[at]*Task)
	}
	if len(ts.all) >= maxTasks {
		maps.DeleteFunc(ts.all, func(_ at, old *Task) bool { return old != running })
	}
	ts.all[at{t.Conn, t.ID}] = t
	return nil
}

// On is the task of an id on a connection, nil for none.
func (ts *Table) On(conn *bridge.Upstream, id string) *Task {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.all[at{conn, id}]
}

// Of is the task of an id that is the principal's, and one that the client can follow: that on
// the connection given, or else the only one on any. Nil: there is none.
func (ts *Table) Of(id string, owner wire.Principal, by bridge.Client, conn *bridge.Upstream) *Task {
	mine := func(t *Task) bool { return t != nil && t.Owner == owner && by.Follows(t.Conn.Server) }
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.all[at{conn, id}]; mine(t) {
		return t
	}
	var only *Task
	for where, t := range ts.all {
		if where.id != id || !mine(t) {
			continue
		}
		if only != nil {
			return nil
		}
		only = t
	}
	return only
}

// Running reports whether the outcome of a task is still to come.
func (ts *Table) Running() bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.all {
		if !t.isOver() {
			return true
		}
	}
	return ts.coming != nil
}

// End ends the tasks of a run that is over, the awaited one as well; those that are kept not, where the run goes on when it
// is asked for again, or the proxy has been started anew.
func (ts *Table) End(goesOn bool) {
	ts.mu.Lock()
	var over []*Task
	maps.DeleteFunc(ts.all, func(_ at, t *Task) bool {
		ends := !goesOn || !t.kept.Load()
		if ends {
			over = append(over, t)
		}
		return ends
	})
	if !goesOn && ts.coming != nil {
		over = append(over, ts.coming)
	}
	ts.mu.Unlock()
	for _, t := range over {
		t.End(run.End{Outcome: policy.Unknown}, nil)
	}
}

// Leave has nobody ask any more about the tasks that are kept: their run goes on elsewhere, and they with it. It is to be called
// before the connections end that they live on.
func (ts *Table) Leave() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.all {
		if t.kept.Load() {
			t.leaveLocked()
		}
	}
	if ts.coming != nil {
		ts.coming.leaveLocked()
	}
}

// maxPages is how many pages of a server's tasks are read.
const maxPages = 1000

// List answers tasks/list with those of a server's tasks that are mine, which by their id are what mine says: of all its
// pages, in one. A cursor may tell of others' tasks, too. It reads on while wanted. Without own
// the server has answered with failure.
func List(ctx context.Context, conn *bridge.Upstream, mine func(id string) *Task, wanted func() bool) (own []byte, failure *wire.Message, err error) {
	own = []byte(`{"tasks":[`)
	var params, cursor []byte
	for range maxPages {
		m, err := conn.Start(wire.Made(wire.RequestMessage(0, "tasks/list", params)), nil).Wait(ctx)
		if err != nil || m.Kind == wire.Failure {
			return nil, m, err
		}
		own = appendMine(own, wire.Member(m.Bytes(m.Result), "tasks"), mine)
		next := wire.Member(m.Bytes(m.Result), "nextCursor")
		if len(next) == 0 || next[0] != '"' || bytes.Equal(next, cursor) || !wanted() {
			break
		}
		cursor, params = next, append(append([]byte(`{"cursor":`), next...), '}')
	}
	return append(own, "]}"...), nil, nil
}

// appendMine appends those of a page to those that were found already.
func appendMine(own, page []byte, mine func(id string) *Task) []byte {
	_ = wire.Elements(page, func(item []byte) error {
		id, _ := wire.Text(wire.Member(item, "taskId"))
		if t := mine(id); t == nil || t.isAnother(item) {
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

// Index finds the run of a task. A client's library asks about a task by its id alone, and
// knows of no handle: whoever brings the id of a task that they began, under which no other run
// of theirs has one, is taken to its run. Where nobody authenticates only ids that nobody
// guesses are (2025-11-25, basic/utilities/tasks, "Task Isolation and Access Control"), and of a
// principal that several share none: they bring the handle. It is safe for concurrent use.
type Index[R comparable] struct {
	mu   sync.Mutex // guards what follows
	runs map[key]R  // the zero R: several have a task of this id
}

type key struct {
	owner wire.Principal
	id    string
}

// maxKeys is how many tasks are found by their id; others by handle alone.
const maxKeys = 100_000

// Enter remembers which run a task is of.
func (x *Index[R]) Enter(t *Task, r R) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.runs == nil {
		x.runs = make(map[key]R)
	}
	at := key{t.Owner, t.ID}
	switch before, there := x.runs[at]; {
	case there && before != r:
		var several R
		x.runs[at] = several
	case len(x.runs) < maxKeys:
		x.runs[at] = r
	}
}

// Find is the run of a principal's task, the zero R where that is not known.
func (x *Index[R]) Find(id string, owner wire.Principal) R {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.runs[key{owner, id}]
}

// Forget forgets the tasks of a run.
func (x *Index[R]) Forget(r R) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.runs, func(_ key, of R) bool { return of == r })
}
