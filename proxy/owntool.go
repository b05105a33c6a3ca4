package proxy

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// ownToolsOf are those of a session's run.
func (p *Proxy) ownToolsOf(s *session) ownTools {
	switch {
	case s.run.key.begins():
		return restarts{}
	case s.ofRun && p.handles != nil:
		return runTools{p.handles}
	}
	return noTools{}
}

type noTools struct{}

func (noTools) List(run.Snapshot, bool, wire.Principal) *catalogue.Own { return nil }
func (noTools) Call(*call) (wire.Pending, bool)                        { return nil, false }

// restarts are the tool by which a client begins a run anew that is complete, under keys
// that name a client or a task, and not a run.
type restarts struct{}

// restart is the tool where the run is complete, reserved is its name where it may be.
var (
	restart  = &catalogue.Own{Tools: [][]byte{handle.Again()}, Names: []string{handle.StartName}}
	reserved = &catalogue.Own{Names: restart.Names}
)

func (restarts) List(at run.Snapshot, static bool, _ wire.Principal) *catalogue.Own {
	stops := at.InForce().OnComplete() == policy.Stop
	switch {
	case static && stops, !static && at.At.Complete:
		return restart
	case stops:
		return reserved
	}
	return nil
}

func (restarts) Call(c *call) (wire.Pending, bool) {
	if c.m.Method != "tools/call" || c.m.P.Name != handle.StartName || c.s.hello.Load() == nil || !c.s.run.where().MayRestart() {
		return nil, false
	}
	if c.m.P.Task.Present() && !c.s.tasked(c.client) { // which is said where calls are gated
		return nil, false
	}
	c.asksOwn()
	moved, ok := c.s.run.renew()
	if !ok {
		reason := c.called(c.Name) + " is not allowed: the run is not complete."
		if c.opaquely() {
			reason = ""
		}
		return c.refuseText(policy.InvalidTransition, reason), true
	}
	at := c.s.run.where()
	c.s.log.Info("run begun anew", c.about("run", c.s.run.name, "state", at.State())...)
	c.notifyChanged(moved)
	return c.doneWith(handle.StartedAgain(c.s.p.told(at), c.allowedAt(at))), true
}

// asksOwn makes the call one of a tool that is known.
func (c *call) asksOwn() {
	c.Kind, c.Name, c.Known, c.Listed = policy.Tool, c.m.P.Name, true, true
}

// told is the name of a run's state, empty where refusals are opaque.
func (p *Proxy) told(at run.Snapshot) string {
	if p.cfg.Refusals == RefusalsOpaque {
		return ""
	}
	return at.State()
}

// allowedAt says what is allowed in a place, where refusals may.
func (c *call) allowedAt(at run.Snapshot) string {
	if c.opaquely() {
		return ""
	}
	return "State is now '" + at.State() + "'. Allowed now: " + some(c.s.names(at, policy.Tool)) + "."
}

// wayOn is what a request without a run is told further; other reasons say so
// themselves.
func (p *Proxy) wayOn(why *noRun, of bridge.Client) string {
	if why != errNotFound && why != errExpired {
		return ""
	}
	return " " + p.cfg.key(of).renews()
}

// takeHandle reads which run a request belongs to, and takes that out of it, and
// whether it calls a tool of the proxy's own. It returns what is wrong with that.
func (c *call) takeHandle(p *Proxy) string {
	if p.handles == nil {
		return ""
	}
	shadow := p.Mode() == Shadow
	c.own = !shadow && c.m.Method == "tools/call" && handle.Own(c.m.P.Name)
	taken, fault := handle.Take(c.m, p.handles.Argument.Name)
	switch {
	case fault != "" && !shadow:
		return string(fault)
	case len(taken.Edits) > 0:
		c.handle, c.original = taken.Handle, c.m
		c.m = bridge.Reread(wire.Splice(c.m.Raw, taken.Edits...), c.m)
	}
	return ""
}

// asSent is the request as the client has sent it.
func (c *call) asSent() *wire.Message {
	if c.stateless != nil && c.original != nil {
		return c.original
	}
	return c.m
}

// runTools are the tools by which clients come by handles.
type runTools struct{ *catalogue.Handles }

// List implements ownTools.
func (t runTools) List(_ run.Snapshot, _ bool, asks wire.Principal) *catalogue.Own {
	return t.Own(listsRunsOf(asks))
}

// Call implements ownTools.
func (runTools) Call(c *call) (wire.Pending, bool) {
	if !c.own {
		return nil, false
	}
	switch c.asksOwn(); c.Name {
	case handle.StartName:
		return c.startRun(), true
	case handle.EndName:
		return c.endRun(), true
	}
	return c.listRuns(), true
}

func (c *call) startRun() wire.Pending {
	p := c.s.p
	id, why := p.startRun(bridge.Stateless, c.who().Principal)
	if why != nil {
		return c.refuseRunless(why)
	}
	at := p.beginning()
	c.s.log.Info("run started", c.about("run", runID{KeyHandle, id}.name(), "state", at.State())...)
	r := handle.Run{Handle: id, State: p.told(at), Expires: p.expiryOf(deadline.Now())}
	return c.doneWith(handle.Started(p.handles.Argument.Name, r, p.handles.Life, c.allowedAt(at)))
}

func (c *call) endRun() wire.Pending {
	p, from := c.s.p, c.who()
	if c.handle == "" {
		return c.refuseRunless(&noRun{policy.RunNotFound, p.handles.NeedsRun})
	}
	if _, why := p.find(bridge.Stateless, &from, c.handle, false); why != nil {
		return c.refuseRunless(why)
	}
	if !p.EndRun(bridge.Stateless, c.handle, from.Principal) {
		return c.refuseRunless(errNotFound)
	}
	c.s.log.Info("run ended", c.about("run", runID{KeyHandle, c.handle}.name())...)
	return c.doneWith(handle.Ended())
}

// listsRunsOf reports whether a principal is told its runs: whoever has the list has
// their handles.
func listsRunsOf(owner wire.Principal) bool { return owner.Known() && !owner.Shared() }

func (c *call) listRuns() wire.Pending {
	p, owner := c.s.p, c.who().Principal
	if !listsRunsOf(owner) {
		return c.refuseRunless(&noRun{policy.UnknownAction, "Tool '" + handle.ListName + "' is unknown here: runs are listed for clients that are told apart. Keep the handles that " + handle.StartName + " returns."})
	}
	return c.doneWith(handle.Listed(p.handles.Argument.Name, p.runsOf(owner)))
}

// runsOf are the runs of an owner that are found by handle, oldest first.
func (p *Proxy) runsOf(owner wire.Principal) []handle.Run {
	var mine []*liveRun
	p.mu.Lock()
	for _, r := range p.found {
		if r.key.Kind == KeyHandle && r.owner == owner {
			mine = append(mine, r)
		}
	}
	p.mu.Unlock()
	slices.SortFunc(mine, func(a, b *liveRun) int { return int(a.born - b.born) })
	all := make([]handle.Run, len(mine))
	for i, r := range mine {
		at := r.where()
		all[i] = handle.Run{Handle: r.id, State: p.told(at), Complete: at.At.Complete, Expires: p.expiryOf(r.born)}
	}
	return all
}

// expiryOf is when a run ends at the latest that began at an instant.
func (p *Proxy) expiryOf(born time.Duration) time.Time { return deadline.At(born + p.cfg.RunAge) }

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
	r := p.taskRuns.runOf(c.m.P.TaskID, c.from.Principal)
	if r != nil {
		r.used.Store(int64(deadline.Now()))
	}
	return r
}
