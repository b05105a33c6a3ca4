package policy

import (
	"cmp"
	"strings"
)

// isGlob reports whether a pattern is a glob: `*` is the only sign it knows.
func isGlob(pattern string) bool { return strings.Contains(pattern, "*") }

// matchGlob reports whether name lies in the pattern's language, where a `*`
// stands for any run of bytes, none included. A `*` in name is a character like
// any other, which only a `*` of the pattern matches.
func matchGlob(pattern, name string) bool {
	p, n := 0, 0
	star, mark := -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && pattern[p] == name[n]:
			p++
			n++
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// includes reports whether outer's language holds all of inner's. Inner is
// matched as if it were a name: its `*` then acts as a fresh symbol, which no
// literal of outer equals, and that is the hardest word that inner can form.
func includes(outer, inner string) bool { return matchGlob(outer, inner) }

// intersects reports whether some name lies in both languages.
func intersects(a, b string) bool {
	if clash(a, b) {
		return false
	}
	// reach[j] says whether some word fits both a[:i] and b[:j].
	reach := make([]bool, len(b)+1)
	reach[0] = true
	for j := 0; j < len(b) && b[j] == '*'; j++ {
		reach[j+1] = true
	}
	for i := range len(a) {
		diagonal := reach[0]
		reach[0] = reach[0] && a[i] == '*'
		for j := range len(b) {
			above := reach[j+1]
			if a[i] == '*' || b[j] == '*' {
				reach[j+1] = above || reach[j]
			} else {
				reach[j+1] = diagonal && a[i] == b[j]
			}
			diagonal = above
		}
	}
	return reach[len(b)]
}

// clash reports whether the literal beginnings or ends of two globs exclude each
// other, which settles most pairs at once.
func clash(a, b string) bool {
	ai, bi := strings.IndexByte(a, '*'), strings.IndexByte(b, '*')
	if ai < 0 || bi < 0 {
		return false
	}
	if n := min(ai, bi); a[:n] != b[:n] {
		return true
	}
	as, bs := a[strings.LastIndexByte(a, '*')+1:], b[strings.LastIndexByte(b, '*')+1:]
	n := min(len(as), len(bs))
	return as[len(as)-n:] != bs[len(bs)-n:]
}

// compareGlobs orders globs so that one whose language lies strictly within
// another's comes first. It is negative if a comes first. More literal characters come first, then
// fewer stars: a glob's shortest word lies in the language of every wider one,
// so the wider has no more literals, and with as many it has the same ones and
// a star wherever the narrower has one.
func compareGlobs(a, b string) int {
	as, bs := strings.Count(a, "*"), strings.Count(b, "*")
	return cmp.Or(
		cmp.Compare(len(b)-bs, len(a)-as),
		cmp.Compare(as, bs),
	)
}
