package handle

import (
	"fmt"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// DefaultArgument is the name of the argument where nothing else is asked for.
const DefaultArgument = "fsm_run"

// maxArgument is how long a name can be that every model's provider takes.
const maxArgument = 64

// ValidArgument says what is wrong with the name of the argument; nil: nothing. It
// is of the characters that every model's provider takes as a name.
func ValidArgument(name string) error {
	if name == "" || len(name) > maxArgument {
		return fmt.Errorf("an argument's name has 1 to %d characters", maxArgument)
	}
	for _, c := range []byte(name) {
		if !plain(c) {
			return fmt.Errorf("an argument's name is of letters, digits, '_' and '-', which %q is not", name)
		}
	}
	return nil
}

// plain reports whether a character stands for itself in a name, and in a regular
// expression alike.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// AddArgument returns a tool's definition with one more argument, a string that is
// required, under a valid name. Everything else stays byte for byte, and it is made
// by one splice. Where it is not sure that a call that fits the tool's own input schema
// fits the new one with the argument, and nothing else is asked of it, it returns nil
// and why.
func AddArgument(tool []byte, name string) ([]byte, Reason) {
	root, reason := inputSchema(tool)
	if reason != Fits {
		return nil, reason
	}
	s := schema{raw: tool[root.Start:root.End], argument: name}
	if reason := s.read(); reason != Fits {
		return nil, reason
	}
	edits := s.edits()
	for i := range edits {
		edits[i].At.Start += root.Start
		edits[i].At.End += root.Start
	}
	return wire.Splice(tool, edits...), Fits
}

// Misfits returns the tools of a list that cannot take the argument, and why: those
// that AddArgument refuses, and those with the name of one of this package's own.
func Misfits(l *wire.List, argument string) map[string]Reason {
	misfits := make(map[string]Reason)
	for _, item := range l.Items {
		if Own(item.Name) {
			misfits[item.Name] = NameTaken
		} else if _, reason := AddArgument(item.Raw, argument); reason != Fits {
			misfits[item.Name] = reason
		}
	}
	return misfits
}

// inputSchema finds the one input schema of a tool.
func inputSchema(tool []byte) (at wire.Span, reason Reason) {
	found := 0
	err := wire.Members(tool, func(key string, value wire.Span) error {
		if key == "inputSchema" {
			at = value
		}
		if key == "inputSchema" || wire.Lookalike(key, "inputSchema") {
			found++
		}
		return nil
	})
	switch {
	case found > 1:
		return at, Ambiguous
	case err != nil || !at.Present() || tool[at.Start] != '{':
		return at, NoSchema
	}
	return at, Fits
}

// member is the argument in properties. It has no x-mcp-header: no intermediary has
// to see which run a call belongs to.
func (s *schema) member() []byte {
	out := append(wire.AppendString(nil, s.argument), `:{"type":"string","description":`...)
	return append(wire.AppendString(out, "The run that this call belongs to, as "+StartName+" returned it."), '}')
}

// edits are those that add the argument, in front of the others.
func (s *schema) edits() []wire.Edit {
	member, name := s.member(), wire.AppendString(nil, s.argument)
	var edits []wire.Edit
	var fresh []byte
	if s.properties.Present() {
		edits = append(edits, inFront(s.raw, s.properties, member))
	} else {
		fresh = append(append(append(fresh, `"properties":{`...), member...), '}')
	}
	switch {
	case !s.required.Present():
		if fresh != nil {
			fresh = append(fresh, ',')
		}
		fresh = append(append(append(fresh, `"required":[`...), name...), ']')
	case s.required.Start < s.properties.Start:
		edits = []wire.Edit{inFront(s.raw, s.required, name), edits[0]}
	default:
		edits = append(edits, inFront(s.raw, s.required, name))
	}
	if fresh != nil {
		whole := wire.Span{End: int32(len(s.raw))}
		edits = append([]wire.Edit{inFront(s.raw, whole, fresh)}, edits...)
	}
	return edits
}

// inFront puts something in front of what an object, or an array, holds.
func inFront(raw []byte, at wire.Span, what []byte) wire.Edit {
	if !empty(raw[at.Start:at.End]) {
		what = append(what[:len(what):len(what)], ',')
	}
	return wire.Edit{At: wire.Span{Start: at.Start + 1, End: at.Start + 1}, With: what}
}

// empty reports whether an object or an array holds nothing.
func empty(raw []byte) bool {
	for _, c := range raw[1 : len(raw)-1] {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return false
		}
	}
	return true
}
