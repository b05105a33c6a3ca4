package policy

import (
	"cmp"
	"slices"
	"strings"
)

// IsGlob reports whether a pattern is a glob: `*` is the only sign it knows.
func IsGlob(pattern string) bool { return strings.Contains(pattern, "*") }

// matchGlob reports whether name lies in the pattern's language, where a `*`
// stands for any run of bytes, none included. A `*` in name is a character like
// any other, which only a `*` of the pattern matches. It takes time in
// proportion to both.
func matchGlob(pattern, name string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	if !strings.HasPrefix(name, head) {
		return false
	}
	name = name[len(head):]
	for {
		part, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(name, part)
		}
		at := strings.Index(name, part) // the first is as good as any later one
		if at < 0 {
			return false
		}
		name, rest = name[at+len(part):], more
	}
}

// includes reports whether outer's language contains inner's. Inner is
// matched as if it were a name: its `*` then acts as a fresh symbol, which no
// literal of outer equals, and that is the hardest word that inner can form.
func includes(outer, inner string) bool { return matchGlob(outer, inner) }

// intersects reports whether some name lies in both languages. Two globs meet
// unless their literal beginnings or ends exclude each other: whatever one
// demands in between, a star of the other takes.
func intersects(a, b string) bool {
	switch {
	case !IsGlob(a):
		return matchGlob(b, a)
	case !IsGlob(b):
		return matchGlob(a, b)
	}
	x, y := splitGlob(a), splitGlob(b)
	return (strings.HasPrefix(x.head, y.head) || strings.HasPrefix(y.head, x.head)) &&
		(strings.HasSuffix(x.tail, y.tail) || strings.HasSuffix(y.tail, x.tail))
}

// witness returns a name that lies in the languages of two globs that intersect.
func witness(a, b string) string {
	x, y := splitGlob(a), splitGlob(b)
	return longer(x.head, y.head) + x.middle + y.middle + longer(x.tail, y.tail)
}

func longer(a, b string) string {
	if len(b) > len(a) {
		return b
	}
	return a
}

// globParts are a glob's literals before its first star, after its last, and
// those in between, joined.
type globParts struct{ head, middle, tail string }

// splitGlob takes a glob apart; it has a star.
func splitGlob(glob string) globParts {
	first, last := strings.IndexByte(glob, '*'), strings.LastIndexByte(glob, '*')
	return globParts{glob[:first], strings.ReplaceAll(glob[first:last], "*", ""), glob[last+1:]}
}

// compareGlobs orders globs so that one whose language lies strictly within
// another's comes first; it is negative if a does. More literal characters come
// first, then fewer stars: a glob's shortest word lies in the language of every
// wider one, so the wider has no more literals, and with as many it has the same
// ones and a star wherever the narrower has one.
func compareGlobs(a, b string) int {
	as, bs := strings.Count(a, "*"), strings.Count(b, "*")
	return cmp.Or(
		cmp.Compare(len(b)-bs, len(a)-as),
		cmp.Compare(as, bs),
	)
}

// Globs returns the globs of kind k that bind in some state, each once, in the
// file's order.
func (p *Policy) Globs(k Kind) []string {
	var out []string
	for b := range p.Bindings() {
		if b.Kind == k && b.Glob && !b.None && !slices.Contains(out, b.Pattern) {
			out = append(out, b.Pattern)
		}
	}
	return out
}

// GlobMatches returns the names that lie in a glob's language.
func GlobMatches(glob string, names []string) []string {
	var out []string
	for _, name := range names {
		if matchGlob(glob, name) {
			out = append(out, name)
		}
	}
	return out
}
