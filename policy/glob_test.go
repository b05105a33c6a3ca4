package policy

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// words returns every word over the letters up to a length.
func words(letters string, most int) []string {
	all, last := []string{""}, []string{""}
	for range most {
		var next []string
		for _, w := range last {
			for _, c := range letters {
				next = append(next, w+string(c))
			}
		}
		all, last = append(all, next...), next
	}
	return all
}

// asRegexp is a glob as an independent matcher reads it.
func asRegexp(glob string) *regexp.Regexp {
	return regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(glob), `\*`, ".*") + "$")
}

// globs draws patterns over two letters and stars that never touch.
func globs(most int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		g := rapid.StringOfN(rapid.SampledFrom([]rune("ab*")), 1, most, -1).Draw(t, "glob")
		for strings.Contains(g, "**") {
			g = strings.ReplaceAll(g, "**", "*")
		}
		return g
	})
}

// TestGlobsAgainstWords compares matching, inclusion and intersection with a
// look at every short word. The third letter stands in no pattern: it is what
// tells a star from what happens to be spelt out.
func TestGlobsAgainstWords(t *testing.T) {
	all := words("abc", 8)
	rapid.Check(t, func(t *rapid.T) {
		a, b := globs(4).Draw(t, "a"), globs(4).Draw(t, "b")
		ra, rb := asRegexp(a), asRegexp(b)
		inBoth, onlyA, onlyB := false, false, false
		for _, w := range all {
			x, y := ra.MatchString(w), rb.MatchString(w)
			if x != matchGlob(a, w) {
				t.Fatalf("matchGlob(%q, %q) = %v", a, w, !x)
			}
			inBoth, onlyA, onlyB = inBoth || x && y, onlyA || x && !y, onlyB || y && !x
		}
		if includes(b, a) == onlyA || includes(a, b) == onlyB {
			t.Fatalf("includes(%q, %q) = %v, includes(%q, %q) = %v", b, a, !onlyA, a, b, !onlyB)
		}
		if intersects(a, b) != inBoth {
			t.Fatalf("intersects(%q, %q) = %v", a, b, !inBoth)
		}
		if strictly := !onlyA && onlyB; strictly && isGlob(a) && isGlob(b) && compareGlobs(a, b) >= 0 {
			t.Fatalf("%q lies strictly within %q and does not come first", a, b)
		}
		if inBoth && isGlob(a) && isGlob(b) {
			if w := witness(a, b); !matchGlob(a, w) || !matchGlob(b, w) {
				t.Fatalf("%q lies not in both %q and %q", w, a, b)
			}
		}
	})
}

func TestMatchGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true},
		{"*", "anything at all", true},
		{"read_*", "read_", true},
		{"read_*", "read", false},
		{"read_*", "Read_x", false},
		{"*_file", "read_file", true},
		{"*_file", "read_files", false},
		{"a*b*c", "abc", true},
		{"a*b*c", "aXbbYc", true},
		{"a*b*c", "acb", false},
		{"file:///*", "file:///a/b", true},
		{"é*", "école", true},
		{"[a-z]*", "b", false},
		{"a?", "ab", false},
		{"read_*", "read_*", true},
	} {
		if got := matchGlob(c.pattern, c.name); got != c.want {
			t.Errorf("matchGlob(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
}
