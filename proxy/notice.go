package proxy

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// noticed is what the log was told of the upstream's lists, so that each change is
// told once. It begins anew with another policy or another lock. The zero value has
// been told nothing.
type noticed struct {
	mu     sync.Mutex // guards what follows
	policy *policy.Policy
	pins   *pins
	lists  map[sighting]struct{}
	found  [len(gatedLists)]map[string]struct{} // of the bindings, in the last list; nil: there was none
	drifts map[difference]struct{}
}

// sighting is one content of a list.
type sighting struct {
	kind            wire.ListKind
	list, templates [32]byte
}

// difference is one thing that is wrong with a tool.
type difference struct {
	tool   string
	is     lock.Definition
	change lock.Change
}

// maxNoticed bounds the lists, and the differences, that are remembered. Beyond it
// they are told of again.
const maxNoticed = 4096

// notice looks at a list that has come from the upstream: once at each content,
// whatever session it came to.
func (p *Proxy) notice(k wire.ListKind, v view) {
	now := p.Policy()
	drifts, findings := p.noticed.look(now, p.pins.Load(), k, v, p.handles)
	for _, d := range drifts {
		p.tellDrift(now, d)
	}
	for _, f := range findings {
		if f.Level == policy.LevelNote {
			p.cfg.Log.Info("policy: " + f.String())
		} else {
			p.cfg.Log.Warn("policy: " + f.String())
		}
	}
}

func (p *Proxy) tellDrift(now *policy.Policy, d difference) {
	p.cfg.Telemetry.definitionChanged(d.change)
	if d.change == lock.Unlisted { // of which the findings tell
		return
	}
	does := "nothing is done about it"
	if now.Pin() == policy.PinRefuse {
		does = "the tool is hidden and refused"
	}
	p.cfg.Log.Warn("a tool is not what was locked: "+lock.Changes{d.change}.Sentence()+"; "+does+
		"; look at it, and then run 'fsm-proxy lock'", "tool", clip(d.tool), "change", d.change.String())
}

// look returns what is new in a list.
func (n *noticed) look(now *policy.Policy, pins *pins, k wire.ListKind, v view, h *handles) ([]difference, policy.Findings) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.policy != now || n.pins != pins {
		n.policy, n.pins, n.lists, n.drifts = now, pins, nil, nil
		n.found = [len(gatedLists)]map[string]struct{}{}
	}
	if !n.firstLocked(k, v) {
		return nil, nil
	}
	return n.driftsLocked(k, v), n.findingsLocked(k, v, h)
}

// firstLocked reports whether the content is new.
func (n *noticed) firstLocked(k wire.ListKind, v view) bool {
	seen := sighting{kind: k, list: v.list.Digest}
	if v.templates != nil {
		seen.templates = v.templates.Digest
	}
	if _, there := n.lists[seen]; there {
		return false
	}
	if n.lists == nil || len(n.lists) >= maxNoticed {
		n.lists = make(map[sighting]struct{})
	}
	n.lists[seen] = struct{}{}
	return true
}

// driftsLocked returns what is wrong with the tools that the policy binds, as far
// as it is new.
func (n *noticed) driftsLocked(k wire.ListKind, v view) (all []difference) {
	if pin := n.policy.Pin(); k != wire.Tools || pin == policy.PinOff || pin == policy.PinWarn && n.pins.lock == nil {
		return nil
	}
	drift := n.pins.drifts.of(v.list)
	for _, tool := range slices.Sorted(maps.Keys(drift.Changed())) {
		if !n.policy.BoundAnywhere(policy.Tool, tool, true) {
			continue
		}
		for _, change := range drift.Of(tool) {
			all = append(all, difference{tool, drift.Definition(tool), change})
		}
	}
	for _, tool := range n.policy.Exact(policy.Tool) {
		if !v.list.Has(tool) {
			all = append(all, difference{tool: tool, change: lock.Unlisted})
		}
	}
	return slices.DeleteFunc(all, n.toldLocked)
}

// toldLocked reports whether a difference was told of; from now on it was.
func (n *noticed) toldLocked(d difference) bool {
	if _, there := n.drifts[d]; there {
		return true
	}
	if n.drifts == nil || len(n.drifts) >= maxNoticed {
		n.drifts = make(map[difference]struct{})
	}
	n.drifts[d] = struct{}{}
	return false
}

// findingsLocked returns what check would say of the list, and would not have said
// of the one before. What nothing binds is told of only where it has come up: a
// policy often leaves out most of what a server has.
func (n *noticed) findingsLocked(k wire.ListKind, v view, h *handles) (fresh policy.Findings) {
	names := make([]string, len(v.list.Items))
	for i, item := range v.list.Items {
		names[i] = item.Name
	}
	before := n.found[k]
	n.found[k] = make(map[string]struct{})
	found := n.policy.AgainstNames(policyKind(k), names, v.serves())
	if k == wire.Tools {
		found = append(found, n.policy.AgainstHandles(h.why(v.list), policy.LevelWarning)...)
	}
	for _, f := range found {
		key := f.Code + f.Message
		if f.Code != "unbound" && f.Code != "no-handle" { // its message has the names that are listed, which are others now
			key = fmt.Sprint(f.Code, " ", f.Line, ":", f.Column)
		}
		n.found[k][key] = struct{}{}
		if _, said := before[key]; !said && (before != nil || f.Code != "unbound") {
			fresh = append(fresh, f)
		}
	}
	return fresh
}

// serves says whether a template serves a URI, nil where there are none.
func (v view) serves() func(string) bool {
	if v.templates == nil {
		return nil
	}
	return func(uri string) bool { return fromTemplate(v.templates, uri) != nil }
}

// noticeAgain looks at what is cached already, with a new policy or a new lock.
func (p *Proxy) noticeAgain(sessions []*session) {
	if p.Policy().Pin() == policy.PinOff {
		return
	}
	for _, s := range sessions {
		if conn := s.link.live(); conn != nil {
			if l := conn.Cached(wire.Tools); l != nil {
				p.notice(wire.Tools, view{list: l})
			}
		}
	}
}
