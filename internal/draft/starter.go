// Package draft drafts the policy that `fsm-proxy init` writes: what a server lists,
// sorted by what its tools do to the world, as far as can be told. It is pure.
package draft

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// schemaURL is where editors find the JSON Schema of policy files.
const schemaURL = "https://raw.githubusercontent.com/fsm-proxy/fsm-proxy/main/policy/policy.schema.json"

// The states of a starter policy. The second is written as a comment: a state that
// nothing leads to is a mistake, and what leads there is the user's to decide.
const (
	workingState     = "working"
	destructiveState = "destructive"
)

// Policy writes the policy of a draft: what reads is bound everywhere, what
// changes something in one state, and what is destructive in no state, but in one
// that is a comment. Descriptions are left out where the file would be too large
// with them. It is pure.
func (d *Draft) Policy() string {
	w := &starterWriter{describe: true}
	w.policy(d)
	if w.Len() > strictyaml.MaxSource {
		w = &starterWriter{}
		w.policy(d)
	}
	return w.String()
}

// starterWriter writes the lines of a starter policy.
type starterWriter struct {
	strings.Builder
	describe bool // what the server says of a name stands behind it
	comment  bool // each line is a comment, and what it is once "# " is taken away
}

func (w *starterWriter) line(depth int, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if w.comment {
		text = strings.TrimRight("# "+strings.Repeat("  ", depth-1)+text, " ")
		depth = 1
	}
	if text != "" {
		w.WriteString(strings.Repeat("  ", depth))
	}
	w.WriteString(text)
	w.WriteByte('\n')
}

func (w *starterWriter) policy(d *Draft) {
	w.head(d)
	if d.reads.count()+len(d.resources)+len(d.prompts) > 0 {
		w.line(0, "# Bound in every state but terminal ones. What only reads can still give away what it reads.")
		w.line(0, "everywhere:")
		w.tools(1, "", "stay",
			block{"The server says that these only read:", d.reads.said},
			block{"The server does not say what these do; their names sound like reading:", d.reads.named})
		w.items(1, policy.Resource, d.resources)
		w.items(1, policy.Prompt, d.prompts)
		w.line(0, "")
	}
	w.line(0, "states:")
	w.working(d)
	if d.forbidden.count() > 0 {
		w.destructive(d)
	} else {
		w.example(d)
	}
}

func (w *starterWriter) head(d *Draft) {
	w.line(0, "# yaml-language-server: $schema=%s", schemaURL)
	w.line(0, "#")
	w.line(0, "# A draft for %s, written by `fsm-proxy init`. What is bound nowhere does not exist for the client:", strictyaml.Comment(d.inv.Server))
	for _, line := range d.Summary() {
		w.line(0, "#   %s", line)
	}
	if len(d.inv.Templates) > 0 {
		w.line(0, "# The server also has %s: name the concrete URIs that may be read.", counted(d.inv.Templates, "resource template", "resource templates"))
	}
	for _, kind := range policy.AllKinds {
		for _, item := range d.unusable[kind] {
			w.line(0, "# Left out, as a policy cannot name it, or takes its * for any text: %s %s", kind, strictyaml.Comment(item.name))
		}
	}
	w.line(0, "")
	w.line(0, "version: 1")
	if nameable(policy.Tool, d.inv.Server) {
		w.line(0, "name: %s", strictyaml.Scalar(d.inv.Server))
	}
	w.line(0, "initial: %s", workingState)
	w.line(0, "")
}

// working writes the state in which a run begins.
func (w *starterWriter) working(d *Draft) {
	anchor := ""
	if d.forbidden.count() > 0 || d.writes.count() > 1 {
		anchor = " &working   # a name for the end of this file"
	}
	w.line(1, "%s:", workingState)
	w.line(2, "# The model reads this in refusals.")
	w.line(2, "description: %s", d.allowed())
	w.tools(2, anchor, "stay",
		block{"The server says that these change something, and destroy nothing:", d.writes.said},
		block{"The server does not say what these do, and neither do their names:", d.writes.named})
}

// allowed is what the model is told of the state working.
func (d *Draft) allowed() string {
	const closed = " Destructive tools are closed; if you need one, tell the user."
	switch {
	case d.forbidden.count() == 0:
		return "Everything is allowed."
	case d.writes.count() > 0:
		return "Read and change." + closed
	case d.reads.count() > 0:
		return "Read." + closed
	}
	return "No tool is allowed yet." + closed
}

// destructive writes the state of what is forbidden, as a comment, and how it
// becomes one.
func (w *starterWriter) destructive(d *Draft) {
	before := "the_tool_before"
	if others := slices.Concat(d.reads.all(), d.writes.all()); len(others) > 0 {
		before = strictyaml.Scalar(others[0].name)
	}
	w.line(0, "")
	w.comment = true
	w.line(1, "The destructive tools are bound nowhere, so each call of them is refused. To decide: what has to happen")
	w.line(1, "before one may be called? A tool that the agent can call by itself is a step, and no approval: for that,")
	w.line(1, "take one in which the server asks a person. What you find harmless can move up to %q. To open the way:", workingState)
	w.line(1, "1. Give the tool that you chose, above, this value in place of stay:")
	w.line(3, "%s: {on_success: %s, on_unknown: stay}", before, destructiveState)
	w.line(1, "2. Take the \"# \" away from the lines below.")
	w.line(1, "3. Say in the description above what the model has to do first.")
	w.line(1, "")
	w.line(1, "%s:", destructiveState)
	w.line(2, "description: One destructive call may follow.")
	if d.writes.count() == 0 {
		w.tools(2, "", "{on_any: "+workingState+"}", d.destructiveBlocks()...)
	} else {
		w.line(2, "tools:")
		w.line(3, "<<: *working   # what is allowed there is allowed here")
		w.blocks(3, "{on_any: "+workingState+"}", d.destructiveBlocks()...)
	}
	w.comment = false
}

func (d *Draft) destructiveBlocks() []block {
	return []block{
		{"The server says that these may destroy something, or does not deny it:", d.forbidden.said},
		{"The server does not say what these do; their names sound destructive:", d.forbidden.named},
	}
}

// example shows what a second state would look like, with tools of the server.
func (w *starterWriter) example(d *Draft) {
	before, waits := "the_tool_before", "the_tool_that_waits"
	if tools := slices.Concat(d.reads.all(), d.writes.all()); len(tools) > 1 {
		before, waits = strictyaml.Scalar(tools[0].name), strictyaml.Scalar(tools[len(tools)-1].name)
	}
	w.line(0, "")
	w.comment = true
	w.line(1, "The next step: move what must wait out of its place above into a state of its own, and let the tool that")
	w.line(1, "comes before it lead there, by this value in place of stay:")
	w.line(3, "%s: {on_success: second, on_unknown: stay}", before)
	w.line(1, "A tool that the agent can call by itself is a step, and no approval.")
	w.line(1, "")
	w.line(1, "second:")
	w.line(2, "tools:")
	if d.writes.count() > 1 {
		w.line(3, "<<: *working   # what is allowed there is allowed here")
	}
	w.line(3, "%s: {on_any: %s}   # each use needs the step anew", waits, workingState)
	w.comment = false
}

// block is some tools under a comment.
type block struct {
	comment string
	items   []draftItem
}

// tools writes the tools of some blocks, if there are any.
func (w *starterWriter) tools(depth int, anchor, value string, blocks ...block) {
	if !slices.ContainsFunc(blocks, func(b block) bool { return len(b.items) > 0 }) {
		return
	}
	w.line(depth, "tools:%s", anchor)
	w.blocks(depth+1, value, blocks...)
}

func (w *starterWriter) blocks(depth int, value string, blocks ...block) {
	for _, b := range blocks {
		if len(b.items) > 0 {
			w.line(depth, "# %s", b.comment)
			w.bindings(depth, value, b.items)
		}
	}
}

// items writes the resources or prompts, if there are any.
func (w *starterWriter) items(depth int, kind policy.Kind, items []draftItem) {
	if len(items) > 0 {
		w.line(depth, "%s:", kind.Plural())
		w.bindings(depth+1, "stay", items)
	}
}

// maxAligned is how far to the right descriptions stand in one column.
const maxAligned = 48

func (w *starterWriter) bindings(depth int, value string, items []draftItem) {
	lines := make([]string, len(items))
	column := 0
	for i, item := range items {
		lines[i] = strictyaml.Scalar(item.name) + ": " + value
		if n := utf8.RuneCountInString(lines[i]); n <= maxAligned {
			column = max(column, n)
		}
	}
	for i, item := range items {
		if !w.describe || item.description == "" {
			w.line(depth, "%s", lines[i])
			continue
		}
		w.line(depth, "%-*s   # %s", column, lines[i], item.description)
	}
}
