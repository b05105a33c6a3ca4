package strictyaml

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// Entry is one key of a mapping with its value.
type Entry struct {
	Key   *yaml.Node // a scalar
	Value *yaml.Node // resolved
}

// Name returns the key's text.
func (e Entry) Name() string { return e.Key.Value }

// Place returns where the key begins.
func (e Entry) Place() Place { return PlaceOf(e.Key) }

// Entries returns a mapping's entries in order, merged ones last; what a mapping
// says itself holds before what it merges, and the earlier merge before the
// later. Anything but a mapping has none.
func (r *Reader) Entries(n *yaml.Node) []Entry {
	m := merger{r: r, seen: map[string]bool{}}
	m.add(n)
	return m.out
}

type merger struct {
	r    *Reader
	seen map[string]bool
	out  []Entry
}

func (m *merger) add(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return
	}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := Resolve(n.Content[i]), Resolve(n.Content[i+1])
		switch {
		case key.Kind != yaml.ScalarNode: // reported by the walker
		case isMerge(key):
			merges = append(merges, value)
		case !m.seen[key.Value]:
			m.seen[key.Value] = true
			m.out = append(m.out, Entry{key, value})
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
			if c = Resolve(c); c.Kind != yaml.MappingNode {
				m.r.Errorf(PlaceOf(c), "merge", `"<<" merges mappings, not %s`, m.r.nodeText(c))
			} else {
				m.add(c)
			}
		}
	default:
		m.r.Errorf(PlaceOf(v), "merge", `"<<" merges mappings, not %s`, m.r.nodeText(v))
	}
}

func isMerge(key *yaml.Node) bool { return key.Tag == "!!merge" }

// withoutExtensions returns a mapping without the keys that begin with x-, which
// are ignored: a place for anchors.
func (r *Reader) withoutExtensions(n *yaml.Node) *yaml.Node {
	kept := &yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column}
	for _, e := range r.Entries(n) {
		if !strings.HasPrefix(e.Name(), "x-") {
			kept.Content = append(kept.Content, e.Key, e.Value)
		}
	}
	return kept
}
