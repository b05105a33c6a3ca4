package proxy

import (
	"errors"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// restarts are the tool by which a client begins a run anew that is complete, under keys
// that name a client or a task, and not a run.
type restarts struct{}

func (restarts) List(at run.Snapshot, static bool, _ wire.Principal) *catalogue.Own {
	return catalogue.Restarts(at, static)
}

func (restarts) Call(c *call) (wire.Pending, bool) {
	if c.m.Method != "tools/call" || c.m.P.Name != handle.StartName || c.s.shown.Hello.Load() == nil || !c.s.run.Where().MayRestart() ||
		c.wantsUnknownTask() { // which is said where calls are gated
		return nil, false
	}
	c.asksOwn()
	if c.s.run.Lasts() {
		return c.later(func() { wait(c.renew()) }), true
	}
	return c.renew(), true
}

// renew begins the call's run anew.
func (c *call) renew() wire.Pending {
	moved, ok, err := c.s.run.Renew()
	if err != nil {
		return c.refuse(policy.StoreUnavailable)
	}
	if !ok {
		reason := refusal.Called(c.Kind, c.Name) + " is not allowed: the run is not complete."
		if c.opaquely() {
			reason = ""
		}
		return c.refuseText(policy.InvalidTransition, reason)
	}
	at := c.where()
	c.s.log.Info("run begun anew", c.about("run", c.s.run.Name, "state", at.State())...)
	c.notifyChanged(run.Shifts{moved})
	return c.doneWith(handle.StartedAgain(c.s.p.told(at.State()), c.allowedAt(at)))
}

// asksOwn makes the call one of a tool that is known.
func (c *call) asksOwn() {
	c.Kind, c.Name, c.Known, c.Listed = policy.Tool, c.m.P.Name, true, true
}

// told is the name of a state as clients are told it: empty where refusals are opaque.
func (p *Proxy) told(state string) string {
	if p.cfg.Refusals == refusal.Opaque {
		return ""
	}
	return state
}

// allowedAt says what is allowed in a place, where refusals may.
func (c *call) allowedAt(at run.Snapshot) string {
	if c.opaquely() {
		return ""
	}
	return c.s.shown.Note(at, policy.Tool, false).Text()
}

// takeHandle reads which run a request belongs to, and takes that out of it, and
// whether it calls a tool of the proxy's own. It returns what is wrong with that.
func (c *call) takeHandle(p *Proxy) string {
	if p.handles == nil {
		return ""
	}
	shadow := p.Runs.Mode() == runs.Shadow
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
	if c.s.p.cfg.Store != nil {
		return c.later(func() { wait(c.listRuns()) }), true
	}
	return c.listRuns(), true
}

func (c *call) startRun() wire.Pending {
	p := c.s.p
	id, err := p.Runs.Start(bridge.Stateless, c.who().Principal)
	if why, ok := errors.AsType[*runs.Missing](err); ok {
		return c.refuseRunless(why)
	}
	at := p.Runs.Beginning()
	c.s.log.Info("run started", c.about("run", p.Runs.NameOf(runs.Handle, id), "state", at.State())...)
	r := handle.Run{Handle: id, State: p.told(at.State()), Expires: p.Runs.Expiry()}
	return c.doneWith(handle.Started(p.handles.Argument.Name, r, p.handles.Life, c.allowedAt(at)))
}

func (c *call) endRun() wire.Pending {
	p := c.s.p
	if c.handle == "" {
		return c.refuseRunless(&runs.Missing{Code: policy.RunNotFound, Text: p.handles.NeedsRun})
	}
	r, why := p.Runs.Find(bridge.Stateless, c.who(), c.handle, false)
	if why != nil {
		return c.refuseRunless(why)
	}
	if why := p.Runs.End(r); why != nil {
		return c.refuseRunless(why)
	}
	c.s.log.Info("run ended", c.about("run", p.Runs.NameOf(runs.Handle, c.handle))...)
	return c.doneWith(handle.Ended())
}

// listsRunsOf reports whether a principal is told its runs: whoever has the list has
// their handles.
func listsRunsOf(owner wire.Principal) bool { return owner.Known() && !owner.Shared() }

func (c *call) listRuns() wire.Pending {
	p, owner := c.s.p, c.who().Principal
	if !listsRunsOf(owner) {
		return c.refuseRunless(&runs.Missing{Code: policy.UnknownAction, Text: "Tool '" + handle.ListName + "' is unknown here: runs are listed for clients that are told apart. Keep the handles that " + handle.StartName + " returns."})
	}
	mine, err := p.Runs.Mine(owner)
	if err != nil {
		c.s.log.Error("the runs of a principal cannot be read from the store", c.about("error", err)...)
		return c.refuse(policy.StoreUnavailable)
	}
	all := make([]handle.Run, len(mine))
	for i, r := range mine {
		all[i] = handle.Run{Handle: r.Handle, Name: r.Name, State: p.told(r.State), Complete: r.Complete, Expires: r.Expires}
	}
	return c.doneWith(handle.Listed(p.handles.Argument.Name, all))
}

// byTask is the run of a request without a handle that is about a task, nil where it is
// none.
func (c *call) byTask(p *Proxy) *runs.Run {
	if p.handles == nil || c.handle != "" || !strings.HasPrefix(c.m.Method, "tasks/") {
		return nil
	}
	r := p.Runs.ByTask.Find(c.m.P.TaskID, c.from.Principal)
	if r != nil {
		r.Use()
	}
	return r
}

// signals are the tool by which the agent sends signals, beside other tools of the proxy's.
type signals struct {
	beside ownTools
	s      *session
}

// List implements ownTools.
func (t signals) List(at run.Snapshot, static bool, asks wire.Principal) *catalogue.Own {
	argument := ""
	if t.s.ofRun && t.s.p.handles != nil {
		argument = t.s.p.handles.Argument.Name
	}
	return t.s.p.signals.Own(t.beside.List(at, static, asks), at, static, argument)
}

// Call implements ownTools.
func (t signals) Call(c *call) (wire.Pending, bool) {
	if c.m.Method != "tools/call" || c.m.P.Name != policy.SignalTool || t.s.shown.Hello.Load() == nil {
		return t.beside.Call(c)
	}
	return c.signal(), true
}
