package catalogue

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

// noticed is what the log was told of the upstream's lists, so that each change is
// told once. It begins anew with another policy or another lock. The zero value has
// been told nothing.
type noticed struct {
	mu     sync.Mutex // guards what follows
	policy *policy.Policy
	pins   *Pins
	lists  map[content]struct{}
	found  [wire.Templates]map[string]struct{} // of the bindings, in the last list; nil: there was none
	drifts map[Difference]struct{}
}

// Difference is one thing in which a tool is not what was locked.
type Difference struct {
	Tool   string
	Change lock.Change
	is     lock.Definition
}

// maxNoticed bounds the lists, and the differences, that are remembered. Beyond it
// they are told of again.
const maxNoticed = 4096

// Notice looks at a list that has come from the upstream, once at each content,
// whatever session it came to. It returns what is new in it: in what the tools that the
// policy binds differ from what was locked, and what check would say of the policy.
func (c *Catalogue) Notice(v View, now *policy.Policy, pins *Pins, argument *Argument) ([]Difference, policy.Findings) {
	n := &c.noticed
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.policy != now || n.pins != pins {
		n.policy, n.pins, n.lists, n.drifts = now, pins, nil, nil
		n.found = [wire.Templates]map[string]struct{}{}
	}
	if !n.firstLocked(v) {
		return nil, nil
	}
	return n.driftsLocked(v), n.findingsLocked(v, argument)
}

// firstLocked reports whether the content is new.
func (n *noticed) firstLocked(v View) bool {
	seen := v.content()
	if _, there := n.lists[seen]; there {
		return false
	}
	if n.lists == nil || len(n.lists) >= maxNoticed {
		n.lists = make(map[content]struct{})
	}
	n.lists[seen] = struct{}{}
	return true
}

// driftsLocked returns what is wrong with the tools that the policy binds, as far
// as it is new.
func (n *noticed) driftsLocked(v View) (all []Difference) {
	if pin := n.policy.Pin(); v.List.Kind != wire.Tools || pin == policy.PinOff || pin == policy.PinWarn && n.pins.lock == nil {
		return nil
	}
	drift := n.pins.drift(v.List)
	for _, tool := range slices.Sorted(maps.Keys(drift.Changed())) {
		if !n.policy.BoundAnywhere(policy.Tool, tool, true) {
			continue
		}
		for _, change := range drift.Of(tool) {
			all = append(all, Difference{tool, change, drift.Definition(tool)})
		}
	}
	for _, tool := range n.policy.Exact(policy.Tool) {
		if !v.List.Has(tool) {
			all = append(all, Difference{Tool: tool, Change: lock.Unlisted})
		}
	}
	return slices.DeleteFunc(all, n.toldLocked)
}

// toldLocked reports whether a difference was told of; from now on it was.
func (n *noticed) toldLocked(d Difference) bool {
	if _, there := n.drifts[d]; there {
		return true
	}
	if n.drifts == nil || len(n.drifts) >= maxNoticed {
		n.drifts = make(map[Difference]struct{})
	}
	n.drifts[d] = struct{}{}
	return false
}

// findingsLocked returns what check would say of the list, and would not have said
// of the one before. What nothing binds is told of only where it has come up: a
// policy often leaves out most of what a server has.
func (n *noticed) findingsLocked(v View, argument *Argument) (fresh policy.Findings) {
	names := make([]string, len(v.List.Items))
	for i, item := range v.List.Items {
		names[i] = item.Name
	}
	var serves func(uri string) bool
	if v.Templates != nil {
		serves = func(uri string) bool { return v.served(uri) != nil }
	}
	k := v.List.Kind
	before := n.found[k]
	n.found[k] = make(map[string]struct{})
	found := report.AgainstNames(n.policy, policyKind(k), names, serves)
	if k == wire.Tools {
		found = append(found, report.AgainstHandles(n.policy, argument.why(v.List), policy.LevelWarning)...)
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
