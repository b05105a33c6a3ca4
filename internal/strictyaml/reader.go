// Package strictyaml reads YAML files of a language of our own, strictly: one
// document, no tags, bounded size and expansion, each key once, and nothing that
// the tables of fields do not know. What is wrong is found all at once, each with
// its place, the offending text, and what was perhaps meant. The JSON Schema of
// such a language comes from the same tables.
//
// The package is pure, as the policy language that is built on it. It does no I/O
// and keeps no state between files.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// MaxSource is the size of the largest file that is read, in bytes.
const MaxSource = 1 << 20

// maxExpansion is how many YAML nodes aliases and merges may add to those that
// are written down.
const maxExpansion = 100_000

// Language is a kind of file, as far as messages speak of it.
type Language struct {
	// Name is what one file is called, with its article: "a policy".
	Name string
	// Begin is how one begins, for who has written nothing: `"version: 1" and "states:"`.
	Begin string
	// Secrets is whether values can be secrets: then no message repeats what may be
	// one. A slip in the YAML is told by its place alone, and of a key that is not
	// known, what stands in front of the first ":" or "=".
	Secrets bool
	// Mistaken says what a file is, and where it belongs, that is of another kind by its
	// top-level keys, and is "" for every other. Nil: none is looked for.
	Mistaken func(has func(key string) bool) string
	// Typed tells the keys under which a mapping may have a key twice, with quotes and
	// without: see [IsResolved]. Nil: none.
	Typed func(key string) bool
	// Expression tells the keys under which a text is an expression, of CEL as far as its quotes and brackets go:
	// where YAML reads it as something else, it is shown in quotes. Nil: none.
	Expression func(key, text string) bool
}

// Reader reads one file and gathers what it finds. It is not safe for concurrent
// use.
type Reader struct {
	file  string
	lang  Language
	found Findings
	seen  map[Finding]bool // found, each once: what stands under an anchor is read as often as it is used
	count [LevelNote + 1]int
	lines [][]byte // the source, for hints

	cached   cachedLine // see rest
	compared int        // see DidYouMean
}

// NewReader returns a reader of a file; its name is put into findings.
func NewReader(file string, lang Language) *Reader { return &Reader{file: file, lang: lang} }

// File returns the name that was given to NewReader.
func (r *Reader) File() string { return r.file }

// Place is a place in the file. Line and Column count from 1, columns in
// characters; the zero value is no place.
type Place struct {
	Line, Column int
	File         string // "": the reader's own
}

// PlaceOf returns where a node begins.
func PlaceOf(n *yaml.Node) Place { return Place{Line: n.Line, Column: n.Column} }

// maxFindings is how many findings of one level are told of one file. Further
// ones are counted.
const maxFindings = 1000

// Add notes a finding. code is a short stable word for machines, the rest a
// sentence for people.
func (r *Reader) Add(l Level, a Place, code, format string, args ...any) {
	r.AddAbout(l, a, code, "", format, args...)
}

// AddAbout notes a finding about a name, see Finding.Subject.
func (r *Reader) AddAbout(l Level, a Place, code, subject, format string, args ...any) {
	if r.count[l] >= maxFindings {
		r.count[l]++
		return
	}
	f := Finding{
		Level: l, File: cmp.Or(a.File, r.file), Line: a.Line, Column: a.Column,
		Code: code, Message: Printable(fmt.Sprintf(format, args...)), Subject: subject,
	}
	if r.seen[f] {
		return
	}
	if r.seen == nil {
		r.seen = map[Finding]bool{}
	}
	r.seen[f] = true
	r.count[l]++
	r.found = append(r.found, f)
}

// Errorf notes an error, as Add does.
func (r *Reader) Errorf(a Place, code, format string, args ...any) {
	r.Add(LevelError, a, code, format, args...)
}

// OK reports whether no error was found so far.
func (r *Reader) OK() bool { return r.count[LevelError] == 0 }

// Findings returns what was found, sorted, each once. Of a level of which there
// is too much the last says how much more there was.
func (r *Reader) Findings() Findings {
	out := slices.Clone(r.found)
	for l, n := range r.count {
		if more := n - maxFindings; more > 0 {
			out = append(out, Finding{Level: Level(l), File: r.file, Code: "more",
				Message: fmt.Sprintf("there are %d more findings of this level; mend these first", more)})
		}
	}
	out.sort()
	return out
}

// Tree decodes a file, checks what every file is checked for, and returns its root, a
// mapping without extensions; nil, if nothing can be made of it.
func (r *Reader) Tree(src []byte) *yaml.Node {
	if !r.checkBytes(src) {
		return nil
	}
	r.lines = bytes.Split(src, []byte("\n"))
	root := r.document(src)
	if root == nil {
		return nil
	}
	w := walker{r: r, ok: true, sizes: map[*yaml.Node]int{}, open: map[*yaml.Node]bool{}, typed: map[*yaml.Node]bool{}, mended: map[*yaml.Node]bool{}}
	switch expanded := w.walk(root); {
	case !w.ok:
		return nil
	case expanded-w.written > maxExpansion:
		r.Errorf(PlaceOf(root), "alias", "aliases make the file more than %d parts longer; write fewer of them", maxExpansion)
		return nil
	}
	if root.Kind != yaml.MappingNode {
		r.Errorf(PlaceOf(root), "type", "%s is a mapping that begins with \"version: 1\", not %s", r.lang.Name, r.nodeText(root))
		return nil
	}
	return r.withoutExtensions(root)
}

// checkBytes checks what the YAML decoder would report without a place.
func (r *Reader) checkBytes(src []byte) bool {
	if len(src) > MaxSource {
		r.Errorf(Place{}, "too-large", "the file has more than %d bytes, the most that %s may have", MaxSource, r.lang.Name)
		return false
	}
	line, column := 1, 1
	for i := 0; i < len(src); {
		c, size := utf8.DecodeRune(src[i:])
		if bad := badCharacter(c, size); bad != "" {
			r.Errorf(Place{Line: line, Column: column}, "encoding", "%s; save the file as UTF-8 text", bad)
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
func (r *Reader) document(src []byte) *yaml.Node {
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
		r.Errorf(PlaceOf(&second), "second-document", `"---" begins a second document; %s is one: remove it, or split the file`, r.lang.Name)
		return nil
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil
	}
	return r.root(&doc)
}

func (r *Reader) root(doc *yaml.Node) *yaml.Node {
	if len(doc.Content) == 0 || IsNothing(doc.Content[0]) {
		r.Errorf(Place{Line: 1, Column: 1}, "empty", "the file is empty; %s begins with %s", r.lang.Name, r.lang.Begin)
		return nil
	}
	root := doc.Content[0]
	if r.lang.Mistaken != nil && root.Kind == yaml.MappingNode {
		if is := r.lang.Mistaken(func(key string) bool { return hasKey(root, key) }); is != "" {
			r.Errorf(PlaceOf(root), "other-kind", "this is %s", is)
			return nil
		}
	}
	return root
}

// hasKey reports whether a mapping has a key of that text.
func hasKey(mapping *yaml.Node, key string) bool {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return true
		}
	}
	return false
}

// walker checks a tree for what no file may hold, and measures it.
type walker struct {
	r       *Reader
	ok      bool // nothing in the tree is endless
	sizes   map[*yaml.Node]int
	open    map[*yaml.Node]bool
	typed   map[*yaml.Node]bool // mappings under a key that Language.Typed tells
	mended  map[*yaml.Node]bool // expressions that were reported
	written int
}

// walk returns the number of nodes below n, aliases expanded, at most one more
// than is allowed.
func (w *walker) walk(n *yaml.Node) int {
	if size, done := w.sizes[n]; done {
		return size
	}
	w.open[n] = true
	defer delete(w.open, n)
	w.written++
	w.checkTag(n)
	if n.Kind == yaml.MappingNode {
		w.mend(n)
		w.checkKeys(n)
	}
	size := 1
	for _, c := range n.Content {
		size += w.child(c)
		size = min(size, MaxSource+maxExpansion+1) // above what any file within bounds expands to
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
		w.r.Errorf(PlaceOf(c), "alias", "alias %q stands within what it names; write the part out", "*"+c.Value)
		w.ok = false
		return 1
	}
	return w.walk(c.Alias)
}

func (w *walker) checkTag(n *yaml.Node) {
	if w.mended[n] || n.Style&yaml.TaggedStyle == 0 && w.r.char(PlaceOf(n)) != '!' {
		return
	}
	if n.Style&yaml.TaggedStyle == 0 {
		w.r.Errorf(PlaceOf(n), "tag", `"!" is a YAML tag; %s has none: remove it, or quote the text if it belongs to it`, w.r.lang.Name)
		return
	}
	if w.r.lang.Secrets {
		w.r.Errorf(PlaceOf(n), "tag", `"!" begins a YAML tag; %s has no tags: remove it, or quote the text if it belongs to it`, w.r.lang.Name)
		return
	}
	if key, found := strings.CutSuffix(n.Tag, ":"); found {
		w.r.Errorf(PlaceOf(n), "tag", "%q is read as a YAML tag, not as a key; quote it: \"%s\":", n.Tag, key)
		return
	}
	w.r.Errorf(PlaceOf(n), "tag", "tag %q: %s has no tags; remove it, or quote the text if \"!\" belongs to it", n.Tag, w.r.lang.Name)
}

func (w *walker) checkKeys(n *yaml.Node) {
	first := map[string]Place{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := Resolve(n.Content[i])
		where := PlaceOf(n.Content[i])
		if key.Kind != yaml.ScalarNode {
			w.r.Errorf(where, "key", "%s as a key; a key is a text: quote it if the brackets belong to it", NodeText(key))
			continue
		}
		id := keyID(key, w.typed[n])
		if isMerge(key) {
			id = "\x00merge"
		}
		if before, dup := first[id]; dup {
			w.r.Errorf(where, "duplicate-key", "%s stands here a second time (first on line %d); keep one", w.r.quote(key.Value), before.Line)
			continue
		}
		first[id] = where
		if w.r.lang.Typed != nil && w.r.lang.Typed(key.Value) {
			w.typed[Resolve(n.Content[i+1])] = true
		}
	}
}
