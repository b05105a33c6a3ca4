package strictyaml

import (
	"fmt"
	"strings"
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

// Resolve follows an alias.
func Resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// NodeText is a node in a message: its text quoted, or what it is.
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

// Quote is a text in a message: cut to a readable length, control characters
// escaped.
func Quote(text string) string {
	const most = 80
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most]) + "…"
	}
	return fmt.Sprintf("%q", text)
}

// nodeText is a value in a message, which can be a secret.
func (r *Reader) nodeText(n *yaml.Node) string {
	if r.lang.Secrets && n.Kind == yaml.ScalarNode && !IsNothing(n) {
		return "what stands there"
	}
	return NodeText(n)
}

// quote is the text of a key, see QuoteKey.
func (r *Reader) quote(key string) string {
	if i := strings.IndexAny(key, ":="); r.lang.Secrets && i >= 0 {
		key = key[:i+1] + "…"
	}
	return Quote(key)
}

// QuoteKey is a key in a message, without what was perhaps meant to be its value.
func (r *Reader) QuoteKey(e Entry) string { return r.quote(e.Name()) }
