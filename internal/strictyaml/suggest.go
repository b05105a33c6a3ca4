package strictyaml

import (
	"fmt"
	"strings"
)

// maxComparisons is how many texts are compared for suggestions in one file: a
// file with that many slips is told without.
const maxComparisons = 100_000

// DidYouMean returns `; did you mean "x"?` for the candidate that is most like
// text, or "" if none is.
func (r *Reader) DidYouMean(text string, candidates []string) string {
	if r.compared += len(candidates); r.compared > maxComparisons {
		return ""
	}
	best, least := "", 1+max(1, len([]rune(text))/3)
	for _, c := range candidates {
		if c == text {
			continue
		}
		if d := likeness(text, c, least); d < least {
			best, least = c, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", Quote(best))
}

// likeness is the number of edits from a to b, case aside, at least most if it
// is not smaller.
func likeness(a, b string, most int) int {
	x, y := []rune(strings.ToLower(a)), []rune(strings.ToLower(b))
	if len(x)-len(y) >= most || len(y)-len(x) >= most || len(x) > 128 {
		return most
	}
	return edits(x, y)
}

// edits is the optimal string alignment distance: insertions, deletions,
// substitutions, and swaps of neighbours.
func edits(x, y []rune) int {
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}

// Listed is names in a message: `"a", "b" or "c"`.
func Listed(names []string) string { return enumerate(names, " or ") }

// And is names in a message: `"a", "b" and "c"`.
func And(names []string) string { return enumerate(names, " and ") }

// MostNames is how many names a message has at most; the rest are counted.
const MostNames = 16

func enumerate(names []string, last string) string {
	const most = MostNames
	quoted := make([]string, 0, min(len(names), most))
	for i, n := range names {
		if i == most {
			return fmt.Sprintf("%s and %d more", strings.Join(quoted, ", "), len(names)-most)
		}
		quoted = append(quoted, Quote(n))
	}
	if len(quoted) < 2 {
		return strings.Join(quoted, "")
	}
	return strings.Join(quoted[:len(quoted)-1], ", ") + last + quoted[len(quoted)-1]
}
