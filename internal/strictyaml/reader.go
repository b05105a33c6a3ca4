package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
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
type Place struct{ Line, Column int }

// PlaceOf returns where a node begins.
func PlaceOf(n *yaml.Node) Place { return Place{n.Line, n.Column} }

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
		Level: l, File: r.file, Line: a.Line, Column: a.Column,
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

func (r *Reader) Tree(src []byte) *yaml.Node {
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
			r.Errorf(Place{line, column}, "encoding", "%s; save the file as UTF-8 text", bad)
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
		r.Errorf(Place{1, 1}, "empty", "the file is empty; %s begins with %s", r.lang.Name, r.lang.Begin)
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
