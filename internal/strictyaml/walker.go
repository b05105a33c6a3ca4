package strictyaml

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// walker checks a tree for what no file may hold, and measures it.
type walker struct {
	r       *Reader
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
		w.r.Errorf(PlaceOf(c), "alias", "alias %q stands within what it names; write the part out", "*"+c.Value)
		w.ok = false
		return 1
	}
	return w.walk(c.Alias)
}

// limit is above what any file within bounds expands to.
func (w *walker) limit() int { return MaxSource + maxExpansion + 1 }

func (w *walker) bounded(root *yaml.Node, expanded int) bool {
	if expanded-w.written <= maxExpansion {
		return true
	}
	w.r.Errorf(PlaceOf(root), "alias", "aliases make the file more than %d parts longer; write fewer of them", maxExpansion)
	return false
}

func (w *walker) checkTag(n *yaml.Node) {
	if n.Style&yaml.TaggedStyle == 0 && w.r.char(PlaceOf(n)) != '!' {
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
		id := key.Value
		if isMerge(key) {
			id = "\x00merge"
		}
		if before, dup := first[id]; dup {
			w.r.Errorf(where, "duplicate-key", "%s stands here a second time (first on line %d); keep one", w.r.quote(key.Value), before.Line)
			continue
		}
		first[id] = where
	}
}
