package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// maxSource is the size of the largest policy file, in bytes.
const maxSource = 1 << 20

// maxExpansion is how many YAML nodes aliases and merges may add to those that
// are written down.
const maxExpansion = 100_000

// reader reads one policy file and gathers what it finds.
type reader struct {
	file  string
	found Findings
	lines [][]byte // the source, for hints

	cached   cachedLine // see rest
	compared int        // see didYouMean
}

// at is a place in the file.
type at struct{ line, column int }

func placeOf(n *yaml.Node) at { return at{n.Line, n.Column} }

func (r *reader) add(l Level, a at, code, format string, args ...any) {
	r.found = append(r.found, Finding{
		Level: l, File: r.file, Line: a.line, Column: a.column,
		Code: code, Message: fmt.Sprintf(format, args...),
	})
}

func (r *reader) errorf(a at, code, format string, args ...any) {
	r.add(LevelError, a, code, format, args...)
}

// findings returns what was found, sorted, each once: what stands under an
// anchor is read as often as it is used.
func (r *reader) findings() Findings {
	seen := map[Finding]bool{}
	var out Findings
	for _, f := range r.found {
		if !seen[f] {
			seen[f] = true
			out = append(out, f)
		}
	}
	out.sort()
	return out
}

// tree reads the source into the one mapping that a policy file is, with no tag,
// no duplicate key and bounded aliases. It returns nil if nothing more can be
// read.
func (r *reader) tree(src []byte) *yaml.Node {
	if !r.checkBytes(src) {
		return nil
	}
	r.lines = bytes.Split(src, []byte("\n"))
	root := r.document(src)
	if root == nil {
		return nil
	}
	w := walker{r: r, sizes: map[*yaml.Node]int{}, open: map[*yaml.Node]bool{}}
	if expanded := w.walk(root); !w.ok || !w.bounded(root, expanded) {
		return nil
	}
	return root
}

// checkBytes checks what the YAML decoder would report without a place.
func (r *reader) checkBytes(src []byte) bool {
	if len(src) > maxSource {
		r.errorf(at{}, "too-large", "the file has more than %d bytes, the most that a policy may have", maxSource)
		return false
	}
	line, column := 1, 1
	for i := 0; i < len(src); {
		c, size := utf8.DecodeRune(src[i:])
		if bad := badCharacter(c, size); bad != "" {
			r.errorf(at{line, column}, "encoding", "%s; save the file as UTF-8 text", bad)
			return false
		}
		i += size
		column++
		if c == '\n' {
			line, column = line+1, 1
		}
		if c == '\uFEFF' && i == size {
			column = 1
		}
	}
	return true
}

func badCharacter(c rune, size int) string {
	switch {
	case c == utf8.RuneError && size == 1:
		return "bytes that are not UTF-8"
	case c == '\t' || c == '\n' || c == '\r':
		return ""
	case c < ' ' || c >= 0x7f && c < 0xa0 && c != 0x85 || c == 0xfffe || c == 0xffff:
		return fmt.Sprintf("a control character, %U", c)
	}
	return ""
}

// document decodes the one document of the source and returns its root.
func (r *reader) document(src []byte) *yaml.Node {
	loader, err := yaml.NewLoader(bytes.NewReader(src))
	if err != nil {
		r.syntax(err)
		return nil
	}
	var doc, second yaml.Node
	if err := loader.Load(&doc); err != nil && !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil
	}
	if err := loader.Load(&second); err == nil {
		r.errorf(placeOf(&second), "second-document", `"---" begins a second document; a policy is one: remove it, or split the file`)
		return nil
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil
	}
	return r.root(&doc)
}

func (r *reader) root(doc *yaml.Node) *yaml.Node {
	if len(doc.Content) == 0 || isNothing(doc.Content[0]) {
		r.errorf(at{1, 1}, "empty", "the file is empty; a policy begins with \"version: 1\", \"initial: STATE\" and \"states:\"")
		return nil
	}
	return doc.Content[0]
}

// isNothing reports whether a node is an unquoted null.
func isNothing(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Style&yaml.TaggedStyle == 0
}

// isPlain reports whether a scalar stands without quotes.
func isPlain(n *yaml.Node) bool {
	return n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
}

// resolve follows an alias.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// entry is one key of a mapping with its value.
type entry struct {
	key   *yaml.Node // a scalar
	value *yaml.Node // resolved
}

func (e entry) name() string { return e.key.Value }
func (e entry) at() at       { return placeOf(e.key) }
func (e entry) text() text   { return text{at: e.at(), value: e.name(), given: true} }

// entries returns a mapping's entries in order, merged ones last; what a mapping
// says itself holds before what it merges, and the earlier merge before the
// later. Anything but a mapping has none.
func (r *reader) entries(n *yaml.Node) []entry {
	m := merger{r: r, seen: map[string]bool{}}
	m.add(n)
	return m.out
}

type merger struct {
	r    *reader
	seen map[string]bool
	out  []entry
}

func (m *merger) add(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return
	}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		switch {
		case key.Kind != yaml.ScalarNode: // reported by the walker
		case isMerge(key):
			merges = append(merges, value)
		case !m.seen[key.Value]:
			m.seen[key.Value] = true
			m.out = append(m.out, entry{key, value})
		}
	}
	for _, v := range merges {
		m.merge(v)
	}
}

func (m *merger) merge(v *yaml.Node) {
	switch v.Kind {
	case yaml.MappingNode:
		m.add(v)
	case yaml.SequenceNode:
		for _, c := range v.Content {
			if c = resolve(c); c.Kind != yaml.MappingNode {
				m.r.errorf(placeOf(c), "merge", `"<<" merges mappings, not %s`, nodeText(c))
			} else {
				m.add(c)
			}
		}
	default:
		m.r.errorf(placeOf(v), "merge", `"<<" merges mappings, not %s`, nodeText(v))
	}
}

func isMerge(key *yaml.Node) bool { return key.Tag == "!!merge" }

// nodeText is a node in a message: its text quoted, or what it is.
func nodeText(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNothing(n) && n.Value == "":
		return "nothing"
	}
	return quote(n.Value)
}

// quote is a text in a message: cut to a readable length, control characters
// escaped.
func quote(text string) string {
	const most = 80
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most]) + "…"
	}
	return fmt.Sprintf("%q", text)
}

// walker checks a tree for what no policy may hold, and measures it.
type walker struct {
	r       *reader
	ok      bool
	started bool
	sizes   map[*yaml.Node]int
	open    map[*yaml.Node]bool
	written int
}

// walk returns the number of nodes below n, aliases expanded, at most one more
// than is allowed.
func (w *walker) walk(n *yaml.Node) int {
	if !w.started {
		w.started, w.ok = true, true
	}
	if size, done := w.sizes[n]; done {
		return size
	}
	w.open[n] = true
	defer delete(w.open, n)
	w.written++
	w.checkTag(n)
	if n.Kind == yaml.MappingNode {
		w.checkKeys(n)
	}
	size := 1
	for _, c := range n.Content {
		size += w.child(c)
		size = min(size, w.limit())
	}
	w.sizes[n] = size
	return size
}

func (w *walker) child(c *yaml.Node) int {
	if c.Kind != yaml.AliasNode {
		return w.walk(c)
	}
	w.written++
	if w.open[c.Alias] {
		w.r.errorf(placeOf(c), "alias", "alias %q stands within what it names; write the part out", "*"+c.Value)
		w.ok = false
		return 1
	}
	return w.walk(c.Alias)
}

// limit is above what any file within bounds expands to.
func (w *walker) limit() int { return maxSource + maxExpansion + 1 }

func (w *walker) bounded(root *yaml.Node, expanded int) bool {
	if expanded-w.written <= maxExpansion {
		return true
	}
	w.r.errorf(placeOf(root), "alias", "aliases make the file more than %d parts longer; write fewer of them", maxExpansion)
	return false
}

func (w *walker) checkTag(n *yaml.Node) {
	if n.Style&yaml.TaggedStyle == 0 && w.r.char(placeOf(n)) != '!' {
		return
	}
	if n.Style&yaml.TaggedStyle == 0 {
		w.r.errorf(placeOf(n), "tag", `"!" is a YAML tag; a policy has none: remove it, or quote the text if it belongs to it`)
		return
	}
	if key, found := strings.CutSuffix(n.Tag, ":"); found {
		w.r.errorf(placeOf(n), "tag", "%q is read as a YAML tag, not as a key; quote it: \"%s\":", n.Tag, key)
		return
	}
	w.r.errorf(placeOf(n), "tag", "tag %q: a policy has no tags; remove it, or quote the text if \"!\" belongs to it", n.Tag)
}

func (w *walker) checkKeys(n *yaml.Node) {
	first := map[string]at{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := resolve(n.Content[i])
		where := placeOf(n.Content[i])
		if key.Kind != yaml.ScalarNode {
			w.r.errorf(where, "key", "%s as a key; a key is a text: quote it if the brackets belong to it", nodeText(key))
			continue
		}
		id := key.Value
		if isMerge(key) {
			id = "\x00merge"
		}
		if before, dup := first[id]; dup {
			w.r.errorf(where, "duplicate-key", "%s stands here a second time (first on line %d); keep one", quote(key.Value), before.line)
			continue
		}
		first[id] = where
	}
}
