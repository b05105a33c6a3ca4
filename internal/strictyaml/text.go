package strictyaml

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// IsNothing reports whether a node is an unquoted null.
func IsNothing(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Style&yaml.TaggedStyle == 0
}

// IsPlain reports whether a scalar stands without quotes.
func IsPlain(n *yaml.Node) bool {
	return n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
}

// IsResolved reports whether a scalar is no text in YAML: without quotes, and a number, a
// boolean or null.
func IsResolved(n *yaml.Node) bool {
	return IsPlain(n) && (n.Tag == "!!int" || n.Tag == "!!float" || n.Tag == "!!bool" || n.Tag == "!!null")
}

// keyID returns what tells a mapping's keys apart: their text, and in a typed mapping
// whether they are resolved.
func keyID(key *yaml.Node, typed bool) string {
	if typed && IsResolved(key) {
		return "\x00resolved " + key.Value
	}
	return key.Value
}

// Resolve follows an alias.
func Resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// NodeText returns a node as messages have it: its text quoted, or what it is.
func NodeText(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case IsNothing(n) && n.Value == "":
		return "nothing"
	}
	return Quote(n.Value)
}

// Quote writes a text for a message: cut to a readable length, control characters
// escaped.
func Quote(text string) string {
	const most = 80
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most]) + "…"
	}
	return fmt.Sprintf("%q", text)
}

// nodeText returns a value as messages have it, which can be a secret.
func (r *Reader) nodeText(n *yaml.Node) string {
	if r.lang.Secrets && n.Kind == yaml.ScalarNode && !IsNothing(n) {
		return "what stands there"
	}
	return NodeText(n)
}

// quote writes the text of a key, see QuoteKey.
func (r *Reader) quote(key string) string {
	if i := strings.IndexAny(key, ":="); r.lang.Secrets && i >= 0 {
		key = key[:i+1] + "…"
	}
	return Quote(key)
}

// QuoteKey writes a key for a message, without what was perhaps meant to be its value.
func (r *Reader) QuoteKey(e Entry) string { return r.quote(e.Name()) }

// maxComparisons is how many texts are compared for suggestions in one file: a
// file with that many slips is told without.
const maxComparisons = 100_000

// DidYouMean returns `; did you mean "x"?` for the candidate that is most like
// text, or "" if none is.
func (r *Reader) DidYouMean(text string, candidates []string) string {
	if r.compared += len(candidates); r.compared > maxComparisons {
		return ""
	}
	best, least := "", 1+max(1, len([]rune(text))/3)
	for _, c := range candidates {
		if c == text {
			continue
		}
		if d := likeness(text, c, least); d < least {
			best, least = c, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", Quote(best))
}

// likeness is the number of edits from a to b, case aside, at least most if it
// is not smaller.
func likeness(a, b string, most int) int {
	x, y := []rune(strings.ToLower(a)), []rune(strings.ToLower(b))
	if len(x)-len(y) >= most || len(y)-len(x) >= most || len(x) > 128 {
		return most
	}
	return edits(x, y)
}

// edits is the optimal string alignment distance: insertions, deletions,
// substitutions, and swaps of neighbours.
func edits(x, y []rune) int {
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}

// Listed writes names for a message: `"a", "b" or "c"`.
func Listed(names []string) string { return enumerate(names, " or ") }

// And writes names for a message: `"a", "b" and "c"`.
func And(names []string) string { return enumerate(names, " and ") }

// MostNames is how many names a message has at most; the rest are counted.
const MostNames = 16

func enumerate(names []string, last string) string {
	const most = MostNames
	quoted := make([]string, 0, min(len(names), most))
	for i, n := range names {
		if i == most {
			return fmt.Sprintf("%s and %d more", strings.Join(quoted, ", "), len(names)-most)
		}
		quoted = append(quoted, Quote(n))
	}
	if len(quoted) < 2 {
		return strings.Join(quoted, "")
	}
	return strings.Join(quoted[:len(quoted)-1], ", ") + last + quoted[len(quoted)-1]
}

// plainScalar are the texts that every YAML reader takes as they stand, but for
// the words below.
var plainScalar = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)

// yamlWords are words that some YAML reader takes for no string.
var yamlWords = map[string]bool{
	"true": true, "false": true, "null": true, "yes": true, "no": true, "on": true, "off": true, "y": true, "n": true,
}

// Scalar writes a text as a YAML scalar, quoted where it must be.
func Scalar(text string) string {
	if plainScalar.MatchString(text) && !yamlWords[strings.ToLower(text)] {
		return text
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		b.WriteString(escaped(r))
	}
	b.WriteByte('"')
	return b.String()
}

// escaped writes one character of a double-quoted scalar.
func escaped(r rune) string {
	switch {
	case r == '"' || r == '\\':
		return `\` + string(r)
	case r == '\uFEFF' || !unicode.IsPrint(r) && r <= 0xFFFF:
		return fmt.Sprintf(`\u%04x`, r)
	case !unicode.IsPrint(r):
		return fmt.Sprintf(`\U%08x`, r)
	}
	return string(r)
}

// Comment makes a text fit for a comment: one line, and not endless.
func Comment(text string) string {
	if text == "" {
		return "(no name)"
	}
	if runes := []rune(text); len(runes) > 128 {
		text = string(runes[:128]) + "…"
	}
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// Printable makes a text fit for one line of a terminal: what does not print is
// escaped, and white space is spaces.
func Printable(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}
