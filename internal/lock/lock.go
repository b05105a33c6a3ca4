package lock

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Lock is what one lock file says. It does not change.
type Lock struct {
	// Upstream is the server that it was made from.
	Upstream Upstream
	// Tools are the definitions by the tool's name.
	Tools map[string]Definition
	// Globs are the names that each of the policy's globs binds, in order.
	Globs map[string][]string
}

// Upstream is how a server calls itself.
type Upstream struct{ Name, Version string }

// Take makes the lock of all tools that the policy binds somewhere, by their names
// or by a glob. It is an error if the upstream lists one of them twice in different
// ways: nobody could say what was locked.
func Take(p *policy.Policy, from Upstream, tools *wire.List) (*Lock, error) {
	l := &Lock{Upstream: from, Tools: map[string]Definition{}, Globs: map[string][]string{}}
	var names []string
	for _, item := range tools.Items {
		if !p.BoundAnywhere(policy.Tool, item.Name, true) {
			continue
		}
		definition, err := Define(item.Raw)
		if err != nil {
			return nil, fmt.Errorf("reading the definition of tool %q: %w", item.Name, err)
		}
		before, again := l.Tools[item.Name]
		if again && before != definition {
			return nil, fmt.Errorf("the server lists tool %q twice, in different ways; it has to be mended there, or left out of the policy", item.Name)
		}
		if !again {
			names = append(names, item.Name)
		}
		l.Tools[item.Name] = definition
	}
	slices.Sort(names)
	for _, glob := range p.Globs(policy.Tool) {
		l.Globs[glob] = policy.GlobMatches(glob, names)
	}
	return l, nil
}

// Same reports whether two locks hold tools to the same definitions, whatever
// server they were made from.
func (l *Lock) Same(other *Lock) bool {
	if l == nil || other == nil {
		return l == other
	}
	return maps.Equal(l.Tools, other.Tools) && maps.EqualFunc(l.Globs, other.Globs, slices.Equal)
}

// Difference is one line on what two locks differ in.
type Difference struct {
	Tool    string
	Changes Changes // nil where only one of the locks has the tool
	Added   bool    // or else removed, where Changes is nil
	Globs   []string
}

// Differences are what next differs in, by the tool's name. A nil Lock has no
// tools.
func (l *Lock) Differences(next *Lock) (all []Difference) {
	var before map[string]Definition
	if l != nil {
		before = l.Tools
	}
	names := maps.Clone(next.Tools)
	maps.Copy(names, before)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, had := before[name]
		now, has := next.Tools[name]
		d := Difference{Tool: name, Added: has && !had, Globs: next.binding(name)}
		if had && has {
			d.Changes = old.Differ(now)
		}
		if had != has || d.Changes != nil {
			all = append(all, d)
		}
	}
	return all
}

// binding are the globs that bind a tool.
func (l *Lock) binding(tool string) (globs []string) {
	for _, glob := range slices.Sorted(maps.Keys(l.Globs)) {
		if slices.Contains(l.Globs[glob], tool) {
			globs = append(globs, glob)
		}
	}
	return globs
}
