package tasks

import (
	"maps"
	"slices"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Table is the tasks of a run. Its zero value has none. It is safe for concurrent use.
type Table struct {
	mu  sync.Mutex // guards what follows
	all map[at]*Task
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

// Enter makes a task one of the run's. running is the task that has the turn, nil for none: one
// that took the id of that would hide it, and is none of the run's.
func (ts *Table) Enter(t, running *Task) bool {
	if running != nil && running.Conn == t.Conn && running.ID == t.ID {
		return false
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.all == nil {
		ts.all = make(map[at]*Task)
	}
	if len(ts.all) >= maxTasks {
		maps.DeleteFunc(ts.all, func(_ at, old *Task) bool { return old != running })
	}
	ts.all[at{t.Conn, t.ID}] = t
	return true
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

// Take returns the tasks, which the table has no more.
func (ts *Table) Take() []*Task {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	all := slices.Collect(maps.Values(ts.all))
	ts.all = nil
	return all
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
