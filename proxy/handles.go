package proxy

import (
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// handles is what the key handle has clients of the modern era see and give: tools
// by which runs begin and end, and an argument of all others that says which run a
// call belongs to. It is safe for concurrent use.
type handles struct {
	argument string
	life     handle.Lifetime
	hint     string // in the instructions
	needsRun *stray // what a call without a handle hears
	own      [][]byte
	mine     [][]byte // own for those who are told apart

	tasks   handleTasks
	misfits perList[misfits] // in each list
}

// misfits is why tools cannot take the argument, by name.
type misfits = map[string]handle.Reason

func newHandles(cfg *Config) *handles {
	argument := cfg.HandleArgument
	h := &handles{argument: argument, life: handle.Lifetime{Idle: cfg.RunIdle, Age: cfg.RunAge}}
	h.hint = "Call " + handle.StartName + " first, and give the " + argument + " that it returns with every call."
	h.needsRun = &stray{policy.RunNotFound, "This needs a run. Call the tool " + handle.StartName + ", and give the " + argument +
		" that it returns with every call: as an argument of tools, as _meta[\"" + wire.MetaRun + "\"] of anything else."}
	h.misfits = perList[misfits]{most: 256, read: func(l *wire.List) misfits { return handle.Misfits(l, argument) }}
	h.own = [][]byte{handle.Start(argument, h.life), handle.End(argument)}
	h.mine = append(slices.Clone(h.own), handle.List(argument))
	return h
}

// why says of a list which tools cannot take the argument, and why, in sentences.
func (h *handles) why(l *wire.List) map[string]string {
	if h == nil {
		return nil
	}
	why := make(map[string]string)
	for tool, reason := range h.misfits.of(l) {
		why[tool] = reason.Text()
	}
	return why
}

// misfits are the tools that the session's clients cannot call, since the calls
// could not carry a handle. Nil is none.
func (s *session) misfits(l *wire.List) misfits {
	if s.p.handles == nil || s.era == wire.Legacy || l.Kind != wire.Tools || s.run.shadow.Load() {
		return nil
	}
	return s.p.handles.misfits.of(l)
}

// handled reports whether the call has to be of a tool that can take the argument.
func (c *call) handled() bool {
	return c.s.p.handles != nil && c.modern() && c.Kind == policy.Tool && !c.Snapshot.Shadow
}

// misfits refuses a call that the policy allows, if it is of a tool that cannot take
// the argument.
func (c *call) misfits() bool {
	if !c.handled() || c.offer == nil {
		return false
	}
	if c.misfit = c.s.p.handles.misfits.of(c.offer)[c.Name]; c.misfit == handle.Fits {
		return false
	}
	c.Verdict.Allowed, c.Verdict.Turn, c.Verdict.Code = false, false, policy.NotAvailable
	return true
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
	taken, fault := handle.Take(c.m, p.handles.argument)
	switch {
	case fault != "" && !shadow:
		return string(fault)
	case len(taken.Edits) > 0:
		c.handle, c.original = taken.Handle, c.m
		c.m = reread(wire.Splice(c.m.Raw, taken.Edits...), c.m)
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

// dress is how a list of tools differs from what the upstream lists. The zero dress
// is not at all.
type dress struct {
	handles *handles // the argument is added, and the tools for handles
	mine    bool     // who asks is told apart from others
	again   bool     // a run that is complete is followed by another at its client's word
}

// dress is that of the session's tools, whoever asks.
func (s *session) dress() dress {
	switch {
	case s.run.key.begins():
		return dress{again: true}
	case s.era == wire.Modern:
		return dress{handles: s.p.handles}
	}
	return dress{}
}

// dress is the session's for who asks.
func (c *call) dress() dress {
	d := c.s.dress()
	d.mine = d.handles != nil && listsRunsOf(c.who().Principal)
	return d
}

// own are the proxy's own tools, with which a list begins.
func (d dress) own(complete bool) [][]byte {
	switch {
	case d.again && complete:
		return [][]byte{handle.Again()}
	case d.mine:
		return slices.Clone(d.handles.mine)
	case d.handles != nil:
		return slices.Clone(d.handles.own)
	}
	return nil
}

// append appends a tool as it is shown, if it is.
func (d dress) append(items [][]byte, item wire.Item) [][]byte {
	switch {
	case d.again && item.Name == handle.StartName:
		return items
	case d.handles == nil:
		return append(items, item.Raw)
	case handle.Own(item.Name):
		return items
	}
	edited, reason := handle.AddArgument(item.Raw, d.handles.argument)
	if reason != handle.Fits {
		return items
	}
	return append(items, edited)
}

// noTools is the list of an upstream that has no tools.
var noTools = func() *wire.List {
	l, err := wire.NewList(wire.Tools, []*wire.Message{made([]byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`))})
	if err != nil {
		panic(err) // the text above is a constant
	}
	return l
}()

// withTools are capabilities with that of tools, which they lack.
func withTools(capabilities []byte) []byte {
	a := wire.Amend(capabilities, wire.Span{End: int32(len(capabilities))})
	a.Set(wire.Span{}, "tools", listChanges(nil))
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
