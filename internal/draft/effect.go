package draft

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"slices"
	"strings"
	"unicode"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// effect is what a tool does to the world, as far as its server says. The zero
// value is that nothing is known of it.
type effect uint8

const (
	effectUnknown effect = iota
	effectRead
	effectWrite // changes something, and destroys nothing
	effectDestructive
)

// hints are a tool's annotations. They are the server's own word: nobody has
// checked them, and the specification wants them untrusted.
type hints struct {
	ReadOnly    *bool `json:"readOnlyHint"`
	Destructive *bool `json:"destructiveHint"`
	Idempotent  *bool `json:"idempotentHint"`
	OpenWorld   *bool `json:"openWorldHint"`

	garbled bool // something is said that cannot be read, or not in one way only
}

// hintsOf reads the annotations of a listed tool. What is no object says nothing:
// some servers write an empty one as [].
func hintsOf(tool []byte) (h hints) {
	var t struct {
		Annotations jsontext.Value `json:"annotations"`
	}
	err := json.Unmarshal(tool, &t)
	if err == nil && t.Annotations.Kind() == '{' {
		err = json.Unmarshal(t.Annotations, &h)
	}
	if err != nil { // a hint that is no boolean, or a name that stands twice
		return hints{garbled: true}
	}
	return h
}

// effectsOf is what a server says of its tools, by name: of one that is listed twice,
// and differently, the worst. Where each tool has the default annotations nothing is
// known of any: their author said nothing.
func effectsOf(tools []wire.Item) map[string]effect {
	all := make(map[string]effect, len(tools))
	informative := false
	for _, tool := range tools {
		h := hintsOf(tool.Raw)
		informative = informative || !h.defaults()
		said := h.effect()
		if before, twice := all[tool.Name]; twice && before != said {
			said = effectDestructive
		}
		all[tool.Name] = said
	}
	if !informative {
		clear(all)
	}
	return all
}

// effect is what the hints say, unknown where they leave out both that matter.
// What is said of one only is completed as the specification has it: a tool is not
// read-only, and one that is not is destructive. A tool that is said to be both
// read-only and destructive, or in a way that cannot be read, is taken for the worse.
func (h hints) effect() effect {
	switch {
	case h.garbled:
		return effectDestructive
	case h.ReadOnly == nil && h.Destructive == nil:
		return effectUnknown
	case says(h.Destructive, true):
		return effectDestructive
	case says(h.ReadOnly, true):
		return effectRead
	case h.Destructive == nil:
		return effectDestructive
	}
	return effectWrite
}

// defaults reports whether all four are written out with the specification's
// defaults. Libraries do that (mcp-go's NewTool) for tools of which their authors
// said nothing.
func (h hints) defaults() bool {
	return says(h.ReadOnly, false) && says(h.Destructive, true) && says(h.Idempotent, false) && says(h.OpenWorld, true)
}

func says(hint *bool, value bool) bool { return hint != nil && *hint == value }

var (
	readingWords     = []string{"get", "list", "read", "search", "describe", "find"}
	destructiveWords = []string{"delete", "remove", "drop", "destroy", "purge", "truncate", "wipe", "erase", "uninstall"}
)

// effectByName guesses from the words of a name what a tool does. "query",
// "fetch" and "run" tell nothing, and "search_and_replace", "get_or_create" and
// "read_write_file" do more than they begin with.
func effectByName(words []string) effect {
	has := func(some ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(some, w) })
	}
	switch {
	case has(destructiveWords...):
		return effectDestructive
	case len(words) > 0 && slices.Contains(readingWords, words[0]) && !has("and", "or", "then", "write", "replace"):
		return effectRead
	}
	return effectUnknown
}

// wordsOf takes snake_case, kebab-case, camelCase and dotted names apart, and
// returns their words in lower case.
func wordsOf(name string) []string {
	runes := []rune(name)
	var b strings.Builder
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) {
			before, endsCapitals := runes[i-1], i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if !unicode.IsUpper(before) || endsCapitals {
				b.WriteByte(' ')
			}
		}
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			r = ' '
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}

// sharedPrefix is how many words all names begin with: "slack" in
// slack_list_channels and slack_post_message tells nothing. The last word of a name,
// and words that tell something, are no part of it.
func sharedPrefix(names [][]string) int {
	if len(names) < 2 {
		return 0
	}
	for n := 0; ; n++ {
		for _, words := range names {
			if n+1 >= len(words) || words[n] != names[0][n] ||
				slices.Contains(readingWords, words[n]) || slices.Contains(destructiveWords, words[n]) {
				return n
			}
		}
	}
}
