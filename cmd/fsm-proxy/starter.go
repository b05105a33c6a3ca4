package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/yosida95/uritemplate/v3"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// schemaURL is where editors find the JSON Schema of policy files.
const schemaURL = "https://raw.githubusercontent.com/fsm-proxy/fsm-proxy/main/policy/policy.schema.json"

// starterState is the one state of a starter policy.
const starterState = "work"

// inventory is what a server lists, as far as a policy or its lock needs to know.
type inventory struct {
	server    string // its name
	version   string // and version
	offers    []policy.Offer
	templates []string // URI templates; a policy names concrete URIs
	tools     *wire.List
}

// starter writes a policy that binds all of an inventory, so that it forbids
// nothing until somebody edits it. It is pure.
func starter(inv inventory) string {
	w := &starterWriter{}
	w.head(inv)
	readOnly := inv.names(policy.Tool, true)
	if len(readOnly) > 0 {
		w.line(0, "# Bound in every state but terminal ones. A read-only tool can still give away what it reads.")
		w.line(0, "everywhere:")
		w.bindings(1, policy.Tool, readOnly, "   # the server says read-only; check it")
		w.line(0, "")
	}
	w.states(inv)
	return w.String()
}

// names are the names of one kind, either those that the server calls read-only
// or all others.
func (inv inventory) names(kind policy.Kind, readOnly bool) []string {
	var names []string
	for _, o := range inv.offers {
		if o.Kind == kind && (kind == policy.Tool && o.ReadOnly) == readOnly {
			names = append(names, o.Name)
		}
	}
	return names
}

// unbound are the names of each kind that no state of a policy binds, as they
// can be printed.
func (inv inventory) unbound(p *policy.Policy) (names [policy.Kinds][]string) {
	for _, o := range inv.offers {
		if len(p.BoundIn(o.Kind, o.Name, true)) == 0 {
			names[o.Kind] = append(names[o.Kind], strictyaml.Comment(o.Name))
		}
	}
	return names
}

// starterWriter writes the lines of a starter policy.
type starterWriter struct{ strings.Builder }

func (w *starterWriter) line(depth int, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if text != "" {
		w.WriteString(strings.Repeat("  ", depth))
	}
	w.WriteString(text)
	w.WriteByte('\n')
}

func (w *starterWriter) head(inv inventory) {
	w.line(0, "# yaml-language-server: $schema=%s", schemaURL)
	w.line(0, "#")
	w.line(0, "# A starter policy for %s, written by `fsm-proxy init`. It binds everything that the", strictyaml.Comment(inv.server))
	w.line(0, "# server lists, so it forbids nothing yet. What is bound nowhere does not exist for the client.")
	if len(inv.templates) > 0 {
		w.line(0, "# The server also has %s: name the concrete URIs that may be read.", count(len(inv.templates), "resource template"))
	}
	w.line(0, "")
	w.line(0, "version: 1")
	if nameable(policy.Tool, inv.server) {
		w.line(0, "name: %s", strictyaml.Scalar(inv.server))
	}
	w.line(0, "initial: %s", starterState)
	w.line(0, "")
}

// states writes the one state, and how a second one would look.
func (w *starterWriter) states(inv inventory) {
	w.line(0, "# The next step: move what must wait into a state of its own, and let the tool that comes before")
	w.line(0, "# it lead there:")
	w.line(0, "#   %s:", starterState)
	w.line(0, "#     tools:")
	w.line(0, "#       the_first_tool: {on_success: second, on_unknown: second}   # what got no answer may have happened")
	w.line(0, "#   second:")
	w.line(0, "#     tools:")
	w.line(0, "#       the_tool_that_waits: {on_success: %[1]s, on_unknown: %[1]s}", starterState)
	w.line(0, "states:")
	w.line(1, "%s:", starterState)
	w.line(2, "description: Everything is allowed.   # shown to the model in refusals")
	for _, kind := range policy.AllKinds {
		w.bindings(2, kind, inv.names(kind, false), "")
	}
}

// bindings writes the names of one kind, where there are any.
func (w *starterWriter) bindings(depth int, kind policy.Kind, names []string, comment string) {
	if len(names) == 0 {
		return
	}
	w.line(depth, "%s:", kind.Plural())
	w.names(depth+1, kind, names, comment)
}

// names writes each name once.
func (w *starterWriter) names(depth int, kind policy.Kind, names []string, comment string) {
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		switch {
		case !nameable(kind, name):
			w.line(depth, "# left out, since a policy cannot name it: %s", strictyaml.Comment(name))
		case strings.Contains(name, "*"):
			w.line(depth, "%s: stay%s   # here * is a wildcard", strictyaml.Scalar(name), comment)
		default:
			w.line(depth, "%s: stay%s", strictyaml.Scalar(name), comment)
		}
	}
}

// nameable reports whether a policy can name it. There are no control characters
// in names, and ** is no pattern.
func nameable(kind policy.Kind, name string) bool {
	_, findings := policy.Parse("", fmt.Appendf(nil, "{version: 1, initial: s, states: {s: {%s: {%s: }}}}", kind.Plural(), strictyaml.Scalar(name)))
	return findings.Err() == nil
}

// templateServes reports whether one of the server's resource templates may serve
// a URI.
func (inv inventory) templateServes(uri string) bool {
	return slices.ContainsFunc(inv.templates, func(text string) bool {
		t, err := uritemplate.New(text)
		return err == nil && t.Match(uri) != nil
	})
}
