package kept

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
)

// longest is how long a longest common subsequence is, by its definition.
func longest(a, b []int) int {
	best := make([][]int, len(a)+1)
	for i := range best {
		best[i] = make([]int, len(b)+1)
	}
	for i := range a {
		for j := range b {
			if best[i+1][j+1] = max(best[i][j+1], best[i+1][j]); a[i] == b[j] {
				best[i+1][j+1] = best[i][j] + 1
			}
		}
	}
	return best[len(a)][len(b)]
}

// Both sequences come out whole and in order, with as much the same as can be.
func TestAlign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.IntRange(0, 3), 0, 40)
		a, b := some.Draw(t, "a"), some.Draw(t, "b")
		if both := aligned(t, a, b); both != longest(a, b) {
			t.Fatalf("%d are the same, of %d", both, longest(a, b))
		}
	})
}

// aligned lines sequences up, looks whether that is what they are, and returns how much is the same.
func aligned(t interface{ Fatalf(string, ...any) }, a, b []int) (both int) {
	i, j := 0, 0
	for _, p := range align(a, b) {
		switch {
		case p.both() && p.first == i && p.second == j && a[i] == b[j]:
			i, j, both = i+1, j+1, both+1
		case p.first == i && p.second < 0:
			i++
		case p.second == j && p.first < 0:
			j++
		default:
			t.Fatalf("%v at %d, %d", p, i, j)
		}
	}
	if i != len(a) || j != len(b) {
		t.Fatalf("it ends at %d, %d", i, j)
	}
	return both
}

// Long sequences that have little in common take no long time, and no lot of memory.
func TestAlignOfWhatDiffers(t *testing.T) {
	a, b := make([]int, 100_000), make([]int, 100_000)
	for i := range a {
		a[i], b[i] = 2*i, 2*i+1
	}
	for i := range 10 {
		a[i], b[i] = i, i
		a[len(a)-1-i], b[len(b)-1-i] = i, i
	}
	if both := aligned(t, a, b); both != 20 {
		t.Errorf("%d are the same", both)
	}
}

func TestDiff(t *testing.T) {
	many := []string{began}
	for range 10 {
		many = append(many, reads)
	}
	url := store(t, map[string][]string{
		"AAA1": append(append([]string{}, many...), plans, applies, applied),
		"AAB2": append(append([]string{fails}, many...), plans, fails, reads),
		"AAC3": append(append([]string{}, many...), plans, applies, applied),
	})
	out, err := do(t, "", "diff", "aaa", "aab", "--store", url)
	const want = `--- run AAA1
+++ run AAB2
@@ -1,3 +1,4 @@
+ended     tool read  error  in open
 began     in open
 ended     tool read  success  in open
 ended     tool read  success  in open
@@ -10,5 +11,5 @@
 ended     tool read  success  in open
 ended     tool read  success  in open
 ended     tool plan  success  open → ready
-begun     tool apply  in ready
-ended     tool apply  success  ready → done
+ended     tool read  error  in open
+ended     tool read  success  in open
`
	if out != want || !errors.Is(err, exit.ErrReported) {
		t.Errorf("%s\n%v", out, err)
	}
	if out, err := do(t, "", "diff", "aaa", "aac", "--store", url); out != "" || err != nil {
		t.Errorf("what is the same: %q, %v", out, err)
	}
	out, err = do(t, "", "diff", "aaa", "aab", "--json", "--store", url)
	for _, line := range []string{
		`{"in":"second","second":1,"type":"ended","kind":"tool","name":"read","outcome":"error","from":"open","to":"open"}` + "\n" +
			`{"in":"both","first":1,"second":2,"type":"began","from":"open","to":"open"}` + "\n",
		`{"in":"first","first":14,"type":"ended","kind":"tool","name":"apply","outcome":"success","from":"ready","to":"done"}` + "\n",
	} {
		if !strings.Contains(out, line) || strings.Count(out, "\n") != 17 || !errors.Is(err, exit.ErrReported) {
			t.Errorf("%s\n%v, without\n%s", out, err, line)
		}
	}
	if out, err := do(t, "", "diff", "aaa", "aac", "--json", "--store", url); strings.Count(out, `"in":"both"`) != 14 || err != nil {
		t.Errorf("%s, %v", out, err)
	}
	for args, says := range map[string]string{"diff aaa": "2 arguments", "diff aaa x": "no run whose id", "diff x aaa": "no run whose id"} {
		if out, err := do(t, "", append(strings.Fields(args), "--store", url)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q, %v", args, out, err)
		}
	}
}

// Each line says at once whose it is.
func TestColours(t *testing.T) {
	url := store(t, map[string][]string{"AAA1": {began, plans}, "AAB2": {began, fails}})
	for args, want := range map[string]string{
		"diff aaa aab": "\x1b[1;31m-ended     tool plan  success  open → ready\x1b[0m\n\x1b[1;32m+ended     tool read  error  in open\x1b[0m\n",
		"tail aab":     "  tool read  \x1b[1;31merror\x1b[0m  in \x1b[1;36mopen\x1b[0m\n",
		"ls":           "\x1b[1;36mready\x1b[0m   2         ",
		"show aaa":     "state      \x1b[1;36mready\x1b[0m\n",
	} {
		for _, color := range []string{"always", "never", "auto"} {
			out, _ := do(t, "", append(strings.Fields(args), "--store", url, "--color", color)...)
			if strings.Contains(out, want) != (color == "always") || strings.Contains(out, "\x1b") != (color == "always") || out == "" {
				t.Errorf("%s %s: %q", args, color, out)
			}
		}
		if out, _ := do(t, "", append(strings.Fields(args), "--json", "--color", "always", "--store", url)...); strings.Contains(out, "\x1b") || out == "" {
			t.Errorf("%s --json: %q", args, out)
		}
	}
}
