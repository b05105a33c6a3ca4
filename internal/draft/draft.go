package draft

import (
	"cmp"
	"encoding/json/v2"
	"fmt"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/inventory"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Draft says where each name that a server lists stands in its starter policy.
type Draft struct {
	inv       *inventory.Inventory
	reads     drafted // everywhere
	writes    drafted // in the state working
	forbidden drafted // in no state yet
	resources []draftItem
	prompts   []draftItem
	unusable  [policy.Kinds][]draftItem // that no policy can bind, or only by a wildcard
}

// drafted are the tools of one group, by what put them there.
type drafted struct {
	said  []draftItem // by the server's annotations
	named []draftItem // by their names; writes: for want of both
}

// draftItem is one name, with what the server says of it.
type draftItem struct{ name, description string }

func (d drafted) count() int { return len(d.said) + len(d.named) }

func (d drafted) all() []draftItem { return slices.Concat(d.said, d.named) }

// New groups what a server lists. It is pure.
func New(inv *inventory.Inventory) *Draft {
	d := &Draft{inv: inv}
	tools := d.usable(policy.Tool, inv.Tools)
	words := make([][]string, len(tools))
	for i, item := range tools {
		words[i] = wordsOf(item.Name)
	}
	var said map[string]effect
	if inv.Tools != nil {
		said = effectsOf(inv.Tools.Items)
	}
	prefix := sharedPrefix(words)
	for i, item := range tools {
		d.addTool(draftItemOf(item), said[item.Name], effectByName(words[i][prefix:]))
	}
	for _, item := range d.usable(policy.Resource, inv.Resources) {
		d.resources = append(d.resources, draftItemOf(item))
	}
	for _, item := range d.usable(policy.Prompt, inv.Prompts) {
		d.prompts = append(d.prompts, draftItemOf(item))
	}
	return d
}

// addTool puts a tool into its group, by what the server says of it, else by what
// its name does.
func (d *Draft) addTool(tool draftItem, said, named effect) {
	switch {
	case said == effectRead:
		d.reads.said = append(d.reads.said, tool)
	case said == effectWrite:
		d.writes.said = append(d.writes.said, tool)
	case said == effectDestructive:
		d.forbidden.said = append(d.forbidden.said, tool)
	case named == effectRead:
		d.reads.named = append(d.reads.named, tool)
	case named == effectDestructive:
		d.forbidden.named = append(d.forbidden.named, tool)
	default:
		d.writes.named = append(d.writes.named, tool)
	}
}

// usable are the items of a list that a policy can bind by their names alone, each
// once. A name with a star is a wildcard in a policy: bound everywhere, it would
// open whatever it matches.
func (d *Draft) usable(kind policy.Kind, l *wire.List) []wire.Item {
	if l == nil {
		return nil
	}
	var items []wire.Item
	seen := make(map[string]bool, len(l.Items))
	for _, item := range l.Items {
		switch {
		case seen[item.Name]:
			continue
		case strings.Contains(item.Name, "*") || !nameable(kind, item.Name):
			d.unusable[kind] = append(d.unusable[kind], draftItem{name: item.Name})
		default:
			items = append(items, item)
		}
		seen[item.Name] = true
	}
	return items
}

// draftItemOf reads the description of a listed item: its first line that says
// something, else its title.
func draftItemOf(item wire.Item) draftItem {
	var about struct {
		Title       string `json:"title"`
		Description string `json:"description"`
	}
	_ = json.Unmarshal(item.Raw, &about)
	for _, text := range []string{about.Description, about.Title} {
		if line := firstLine(text); line != "" {
			return draftItem{item.Name, line}
		}
	}
	return draftItem{name: item.Name}
}

// maxDescription is how many characters of a description stand behind a name.
const maxDescription = 80

// firstLine is the first line of a text that is not empty, fit for a comment.
func firstLine(text string) string {
	for line := range strings.FieldsFuncSeq(text, breaksLine) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "" {
			continue
		}
		if runes := []rune(line); len(runes) > maxDescription {
			line = strings.TrimSpace(string(runes[:maxDescription])) + "…"
		}
		return strictyaml.Comment(line)
	}
	return ""
}

// breaksLine reports what some reader of YAML or of text takes for the end of a
// line.
func breaksLine(r rune) bool { return strings.ContainsRune("\n\v\f\r\u0085\u2028\u2029", r) }

// nameable reports whether a policy can name it. There are no control characters
// in names, and ** is no pattern.
func nameable(kind policy.Kind, name string) bool {
	src := "{version: 1, initial: s, states: {s: {" + kind.Plural() + ": {" + strictyaml.Scalar(name) + ": }}}}"
	_, findings := policy.Parse("", []byte(src))
	return findings.Err() == nil
}

// mostNames is how many names of a group a summary repeats.
const mostNames = 8

// Summary says in lines for people what the draft allows where, and on whose word.
func (d *Draft) Summary() []string {
	lines := []string{
		"everywhere  " + phrase(counted(d.reads.all(), "tool that reads", "tools that read"),
			counted(d.resources, "resource", "resources"), counted(d.prompts, "prompt", "prompts")),
		"working     " + phrase(counted(d.writes.said, "tool that changes something", "tools that change something"),
			counted(d.writes.named, "tool of which nothing is known", "tools of which nothing is known")),
		"forbidden   " + phrase(namedItems(d.forbidden.all(), "destructive tool", "destructive tools")),
	}
	for _, kind := range policy.AllKinds {
		if items := d.unusable[kind]; len(items) > 0 {
			lines = append(lines, "left out    "+namedItems(items, kind.String(), kind.Plural())+" (no policy can name it alone)")
		}
	}
	return append(lines, d.basis(), d.next())
}

// basis says on whose word the tools were sorted.
func (d *Draft) basis() string {
	said := len(d.reads.said) + len(d.writes.said) + len(d.forbidden.said)
	guessed := len(d.reads.named) + len(d.forbidden.named)
	switch {
	case said > 0 && guessed > 0:
		return "Tools are sorted by the server's annotations, its own word that nobody has checked; without them by name, a guess."
	case said > 0:
		return "Tools are sorted by the server's annotations: its own word, which nobody has checked."
	case guessed > 0:
		return "The server's tools have no annotations that tell them apart, so they are sorted by name, a guess."
	case len(d.writes.named) > 0:
		return "Neither annotations nor names tell the server's tools apart, so all are allowed."
	}
	return "The server lists no tools that could be sorted."
}

// next says what is for the user to do.
func (d *Draft) next() string {
	if d.forbidden.count() == 0 {
		return "It forbids nothing yet: move what must wait into a state of its own, as the end of the file shows."
	}
	return "Decide what has to happen before a destructive tool may be called: the end of the file shows how."
}

func counted[T any](items []T, one, many string) string {
	switch len(items) {
	case 0:
		return ""
	case 1:
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", len(items), many)
}

// namedItems counts items and names the first; nothing where there are none.
func namedItems(items []draftItem, one, many string) string {
	text, before := counted(items, one, many), ": "
	for _, item := range items[:min(len(items), mostNames)] {
		text, before = text+before+strictyaml.Comment(item.name), ", "
	}
	if len(items) > mostNames {
		text += fmt.Sprintf(" and %d more", len(items)-mostNames)
	}
	return text
}

// phrase joins the parts that say something.
func phrase(parts ...string) string {
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
	return cmp.Or(strings.Join(parts, ", "), "nothing")
}
