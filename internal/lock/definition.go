package lock

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Part is one part of a tool's definition that is locked. The zero value is Title.
type Part uint8

// The parts that a model, or a client that asks a person, goes by.
const (
	Title Part = iota
	Description
	InputSchema
	OutputSchema
	Annotations
)

var partNames = [...]string{Title: "title", Description: "description", InputSchema: "inputSchema", OutputSchema: "outputSchema", Annotations: "annotations"}

// String is the part's member of a tool.
func (p Part) String() string {
	if int(p) < len(partNames) {
		return partNames[p]
	}
	return fmt.Sprintf("Part(%d)", uint8(p))
}

// Digest is the SHA-256 of a part's canonical form. The zero Digest is a part that
// is not there, or null.
type Digest [sha256.Size]byte

// Definition is a tool's definition, by Part.
type Definition [len(partNames)]Digest

// Define reads the definition of a tool as an upstream lists it.
func Define(tool []byte) (Definition, error) {
	var forms [len(partNames)][]byte
	var many [len(partNames)]bool
	err := wire.Members(tool, func(name string, at wire.Span) error {
		part, ok := partOf(name)
		if !ok {
			return nil
		}
		value, err := appendCanonical(nil, tool[at.Start:at.End])
		if err != nil || string(value) == "null" {
			return err
		}
		many[part] = many[part] || forms[part] != nil || name != part.String()
		forms[part] = append(append(append(forms[part], name...), 0), value...)
		return nil
	})
	var d Definition
	for part, form := range forms {
		if form != nil {
			d[part] = digest(Part(part), form, many[part])
		}
	}
	return d, err
}

// digest is the digest of a part that stands in a tool once, as it should. One that
// stands there several times, or under a name that some readers take for it, is
// another one, whatever they say: readers differ in which holds.
func digest(part Part, form []byte, many bool) Digest {
	if many {
		return sha256.Sum256(append([]byte("many\x00"), form...))
	}
	return sha256.Sum256(form[len(part.String())+1:])
}

// partOf is the part whose member has a name, or one that looks like it.
func partOf(name string) (Part, bool) {
	for i, part := range partNames {
		if name == part || wire.Lookalike(name, part) {
			return Part(i), true
		}
	}
	return 0, false
}

// Change is what is wrong with a tool that is not what it was. The zero value is a
// changed title.
type Change uint8

// The changes. Those of a part have the Part's value.
const (
	Unlocked  Change = Change(len(partNames)) + iota // the lock does not have the tool
	Ambiguous                                        // it is listed more than once, in different ways
	Unlisted                                         // the upstream does not list it
)

// AllChanges are the changes, in order.
var AllChanges = [...]Change{Change(Title), Change(Description), Change(InputSchema), Change(OutputSchema), Change(Annotations), Unlocked, Ambiguous, Unlisted}

var changeNames = [...]string{Unlocked: "unlocked", Ambiguous: "ambiguous", Unlisted: "unlisted"}

// String is the part's name, or a word.
func (c Change) String() string {
	switch {
	case int(c) < len(partNames):
		return Part(c).String()
	case int(c) < len(changeNames):
		return changeNames[c]
	}
	return fmt.Sprintf("Change(%d)", uint8(c))
}

// Changes are what is wrong with one tool, nil for nothing.
type Changes []Change

// Differ are the parts in which two definitions differ.
func (d Definition) Differ(other Definition) (changes Changes) {
	for part := range d {
		if d[part] != other[part] {
			changes = append(changes, Change(part))
		}
	}
	return changes
}

// String names the changes: "description, inputSchema".
func (c Changes) String() string {
	words := make([]string, len(c))
	for i, change := range c {
		words[i] = change.String()
	}
	return strings.Join(words, ", ")
}

// Sentence says what is wrong, of "it".
func (c Changes) Sentence() string {
	switch {
	case slices.Contains(c, Unlocked):
		return "it is not in the lock file"
	case slices.Contains(c, Ambiguous):
		return "the server lists it several times, in different ways"
	case slices.Contains(c, Unlisted):
		return "the server does not list it, so that its definition is not known"
	case len(c) == 1:
		return "its " + c.String() + " is not what was locked"
	}
	return "its " + c.String() + " are not what was locked"
}
