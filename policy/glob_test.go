package policy

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/model"
)

// TestGlobsAgainstWords compares matching, inclusion and intersection with a
// look at every short word. The third letter stands in no pattern: it is what
// tells a star from what happens to be spelt out.
func TestGlobsAgainstWords(t *testing.T) {
	all := model.Words("abc", 8)
	rapid.Check(t, func(t *rapid.T) {
		a, b := model.Globs(4).Draw(t, "a"), model.Globs(4).Draw(t, "b")
		ra, rb := model.Regexp(a), model.Regexp(b)
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
		if strictly := !onlyA && onlyB; strictly && IsGlob(a) && IsGlob(b) && compareGlobs(a, b) >= 0 {
			t.Fatalf("%q lies strictly within %q and does not come first", a, b)
		}
		if inBoth && IsGlob(a) && IsGlob(b) {
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

// FuzzGlob compares the match with a slow one that is plainly right.
func FuzzGlob(f *testing.F) {
	for _, seed := range [][2]string{{"a*b", "ab"}, {"ab*ba", "aba"}, {"*aa*a", "aaa"}, {"*", ""}, {"a**b", "axb"}, {"a*", "a*"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern)*len(name) > 10_000 {
			return
		}
		if got, want := matchGlob(pattern, name), slowMatch(pattern, name); got != want {
			t.Fatalf("%q matches %q: %v", pattern, name, got)
		}
	})
}

// slowMatch fills a table: whether each beginning of the pattern matches each
// beginning of the name.
func slowMatch(pattern, name string) bool {
	row := make([]bool, len(name)+1)
	row[0] = true
	for i := range len(pattern) {
		next := make([]bool, len(name)+1)
		next[0] = row[0] && pattern[i] == '*'
		for j := range len(name) {
			if pattern[i] == '*' {
				next[j+1] = row[j+1] || next[j]
			} else {
				next[j+1] = row[j] && pattern[i] == name[j]
			}
		}
		row = next
	}
	return row[len(name)]
}
