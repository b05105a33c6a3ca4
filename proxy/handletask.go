package proxy

import (
	"maps"
	"strings"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// handleTasks are the tasks of runs that are found by handle. A client's library asks
// about a task by its id alone, and knows of no handle: whoever brings the id of a task
// that they began, under which no other run of theirs has one, is taken to its run. Where
// nobody authenticates only ids that nobody guesses are (2025-11-25,
// basic/utilities/tasks, "Task Isolation and Access Control"), and of a principal that
// several share none: they bring the handle. It is safe for concurrent use.
type handleTasks struct {
	mu   sync.Mutex           // guards what follows
	runs map[taskKey]*liveRun // nil: several have a task of this id
}

type taskKey struct {
	owner wire.Principal
	id    string
}

// maxTaskKeys is how many tasks are found by their id; others by handle alone.
const maxTaskKeys = 100_000

// keep remembers whose task it is.
func (h *handleTasks) keep(t *task, r *liveRun) {
	if r.key.Kind != KeyHandle || t.owner.Shared() || !t.owner.Known() && !unguessable(t.id) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs == nil {
		h.runs = make(map[taskKey]*liveRun)
	}
	at := taskKey{t.owner, t.id}
	switch before, there := h.runs[at]; {
	case there && before != r:
		h.runs[at] = nil
	case len(h.runs) < maxTaskKeys:
		h.runs[at] = r
	}
}

// runOf is the run of a task, nil where that is not known.
func (h *handleTasks) runOf(id string, owner wire.Principal) *liveRun {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs[taskKey{owner, id}]
}

// drop forgets the tasks of a run.
func (h *handleTasks) drop(r *liveRun) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.runs, func(_ taskKey, of *liveRun) bool { return of == r })
}

// byTask is the run of a request without a handle that is about a task, nil where it is
// none.
func (c *call) byTask(p *Proxy) *liveRun {
	if p.handles == nil || c.handle != "" || !strings.HasPrefix(c.m.Method, "tasks/") {
		return nil
	}
	r := p.handles.tasks.runOf(c.m.P.TaskID, c.from.Principal)
	if r != nil {
		r.used.Store(int64(instant()))
	}
	return r
}
