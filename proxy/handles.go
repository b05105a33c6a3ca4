package proxy

import (
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// handles is what the key handle has clients of the modern era see and give: tools
// by which runs begin and end, and an argument of all others that says which run a
// call belongs to. It is safe for concurrent use.
type handles struct {
	argument *catalogue.Argument
	life     handle.Lifetime
	hint     string         // in the instructions
	needsRun *stray         // what a call without a handle hears
	own      *catalogue.Own // what is added to tools
	mine     *catalogue.Own // own for those who are told apart
	tasks    handleTasks
}

func newHandles(cfg *Config) *handles {
	argument := cfg.HandleArgument
	h := &handles{argument: catalogue.NewArgument(argument), life: handle.Lifetime{Idle: cfg.RunIdle, Age: cfg.RunAge}}
	h.hint = "Call " + handle.StartName + " first, and give the " + argument + " that it returns with every call."
	h.needsRun = &stray{policy.RunNotFound, "This needs a run. Call the tool " + handle.StartName + ", and give the " + argument +
		" that it returns with every call: as an argument of tools, as _meta[\"" + wire.MetaRun + "\"] of anything else."}
	start := [][]byte{handle.Start(argument, h.life), handle.End(argument)}
	h.own = &catalogue.Own{Tools: start, Argument: h.argument}
	h.mine = &catalogue.Own{Tools: append(slices.Clone(start), handle.List(argument)), Argument: h.argument}
	return h
}

// wayOn is what a request of an era that strays is told further; other strays say so
// themselves.
func (p *Proxy) wayOn(why *stray, era wire.Era) string {
	if why != errNotFound && why != errExpired {
		return ""
	}
	return " " + p.cfg.Keys[era].renews()
}

// takeHandle reads which run a request belongs to, and takes that out of it, and
// which of the proxy's own tools it calls. It returns what is wrong with that.
func (c *call) takeHandle(p *Proxy) string {
	if p.handles == nil {
		return ""
	}
	shadow := p.Mode() == Shadow
	if c.own = ownToolOf(c.m); shadow {
		c.own = notOwn
	}
	taken, fault := handle.Take(c.m, p.handles.argument.Name)
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
	if c.alone != nil && c.original != nil {
		return c.original
	}
	return c.m
}

// restarting is the tool by which a client begins a run anew that is complete; hidden
// is it where no run is.
var (
	restarting = &catalogue.Own{Tools: [][]byte{handle.Again()}, Names: []string{handle.StartName}}
	hidden     = &catalogue.Own{Names: restarting.Names}
)

// ownTools is what the proxy adds to the session's tools, whoever asks.
func (s *session) ownTools(at run.Snapshot, static bool) *catalogue.Own {
	switch {
	case s.run.key.begins():
		stops := at.InForce().OnComplete() == policy.Stop
		switch {
		case static && stops, !static && at.At.Complete:
			return restarting
		case stops:
			return hidden
		}
	case s.era == wire.Modern && s.p.handles != nil:
		return s.p.handles.own
	}
	return nil
}

// ownToolsFor is the session's for who asks.
func (c *call) ownToolsFor(own *catalogue.Own) *catalogue.Own {
	if h := c.s.p.handles; h != nil && own == h.own && listsRunsOf(c.who().Principal) {
		return h.mine
	}
	return own
}

// withTools are capabilities with that of tools, which they lack.
func withTools(capabilities []byte) []byte {
	a := wire.Amend(capabilities, wire.Span{End: int32(len(capabilities))})
	a.Set(wire.Span{}, "tools", bridge.ListChanges(nil))
	return a.Bytes()
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
func (p *Proxy) expiryOf(born time.Duration) time.Time { return epoch.Add(born + p.cfg.RunAge) }
