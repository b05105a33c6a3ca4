package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// ownTool is a tool of the proxy's own, under the key handle.
type ownTool uint8

const (
	notOwn ownTool = iota
	startsRun
	endsRun
	listsRuns
)

// ownToolOf is the proxy's own tool that a request calls.
func ownToolOf(m *wire.Message) ownTool {
	if m.Method != "tools/call" {
		return notOwn
	}
	switch m.P.Name {
	case handle.StartName:
		return startsRun
	case handle.EndName:
		return endsRun
	case handle.ListName:
		return listsRuns
	}
	return notOwn
}

// ownCall answers a call of one of the proxy's own tools, under the key handle. It
// asks nothing of the upstream.
func (c *call) ownCall() wire.Pending {
	c.ofOwn(c.m.P.Name)
	switch c.own {
	case startsRun:
		return c.startRun()
	case endsRun:
		return c.endRun()
	}
	return c.listRuns()
}

// ofOwn makes the call one of a tool that is known.
func (c *call) ofOwn(name string) {
	c.Kind, c.Name, c.Known, c.Listed = policy.Tool, name, true, true
}

func (c *call) startRun() wire.Pending {
	p := c.s.p
	id, why := p.startRun(wire.Modern, c.who().Principal)
	if why != nil {
		return c.strays(why)
	}
	at := p.beginning()
	c.s.log.Info("run started", c.about("run", runID{KeyHandle, id}.name(), "state", at.State())...)
	r := handle.Run{Handle: id, State: p.told(at), Expires: p.expiryOf(instant())}
	return c.doneWith(handle.Started(p.handles.argument.Name, r, p.handles.life, c.allowedAt(at)))
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

func (c *call) endRun() wire.Pending {
	p, from := c.s.p, c.who()
	if c.handle == "" {
		return c.strays(p.handles.needsRun)
	}
	if _, why := p.find(wire.Modern, &from, c.handle, false); why != nil {
		return c.strays(why)
	}
	if !p.EndRun(wire.Modern, c.handle, from.Principal) {
		return c.strays(errNotFound)
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
		return c.strays(&stray{policy.UnknownAction, "Tool '" + handle.ListName + "' is unknown here: runs are listed for clients that are told apart. Keep the handles that " + handle.StartName + " returns."})
	}
	return c.doneWith(handle.Listed(p.handles.argument.Name, p.runsOf(owner)))
}

// begins reports whether the call of a tool begins the run anew, which is the way
// under keys that name a client or a task, and not a walk.
func (c *call) begins(tool string) bool {
	if tool != handle.StartName || !c.s.run.key.begins() {
		return false
	}
	return c.s.run.where().MayRestart()
}

// beginAgain begins the run anew if it is complete.
func (c *call) beginAgain(tool string) wire.Pending {
	c.ofOwn(tool)
	moved, ok := c.s.run.renew()
	if !ok {
		reason := c.called(tool) + " is not allowed: the run is not complete."
		if c.opaquely() {
			reason = ""
		}
		return c.refuseText(policy.InvalidTransition, reason)
	}
	at := c.s.run.where()
	c.s.log.Info("run begun anew", c.about("run", c.s.run.name, "state", at.State())...)
	c.notifyChanged(moved)
	return c.doneWith(handle.StartedAgain(c.s.p.told(at), c.allowedAt(at)))
}

// renew begins a run anew that is complete.
func (r *liveRun) renew() (moved shift, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.Complete {
		return moved, false
	}
	moved.from = r.placeLocked()
	r.restartLocked()
	moved.to = r.placeLocked()
	return moved, true
}
