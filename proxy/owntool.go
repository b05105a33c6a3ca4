package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// ownTools are tools that the proxy itself serves to a session, beside the upstream's.
// The upstream is told nothing of their calls, and no binding decides on them.
type ownTools interface {
	// List returns what is added to the list of tools in a snapshot of the session's run,
	// on a surface, for whoever asks; nil: nothing.
	List(at run.Snapshot, static bool, asks wire.Principal) *catalogue.Own
	// Call answers a call of one of them. It reports false for what is none, and does
	// nothing then.
	Call(c *call) (wire.Pending, bool)
}

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
