package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A state lets the upstream ask what its list has, which is none that the policy's lacks, and without
// one what the policy does. The naive reading goes by the words.
func TestUpstreamMayInStatesAsRead(t *testing.T) {
	words := []string{"sampling", "elicitation", "roots"}
	type list struct {
		given bool
		words []string
	}
	draw := func(t *rapid.T, label string) list {
		out := list{given: rapid.Bool().Draw(t, label+" is given")}
		if out.given {
			out.words = rapid.SliceOfDistinct(rapid.SampledFrom(words), rapid.ID).Draw(t, label)
		}
		return out
	}
	write := func(l list) string {
		if !l.given {
			return ""
		}
		return "upstream_may: [" + strings.Join(l.words, ", ") + "]"
	}
	has := func(l list, word string) bool { return !l.given || slices.Contains(l.words, word) }
	rapid.Check(t, func(t *rapid.T) {
		all := draw(t, "policy")
		states := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) list { return draw(t, "state") }), 1, 4).Draw(t, "states")
		source := "version: 1\ninitial: s0\n" + write(all) + "\nstates:\n"
		wrong := 0
		for i, st := range states {
			source += fmt.Sprintf("  s%d: {%s}\n", i, write(st))
			for _, word := range st.words {
				if !has(all, word) {
					wrong++
				}
			}
		}
		p, findings := Parse("test.yaml", []byte(source))
		if n := strings.Count(fmt.Sprint(findings), "(upstream-may)"); n != wrong || (p == nil) != (wrong > 0) {
			t.Fatalf("%s: %d wrong, found %v", source, wrong, findings)
		}
		if p == nil {
			return
		}
		for _, word := range words {
			everywhere := has(all, word)
			for i, st := range states {
				want := has(all, word) && has(st, word)
				everywhere = everywhere && want
				if got := p.UpstreamMayIn(State(i), p).Permits(word); got != want {
					t.Fatalf("%s: %s in s%d: %v", source, word, i, got)
				}
			}
			if p.UpstreamMay().Permits(word) != has(all, word) || p.UpstreamMayIn(Everywhere, p).Permits(word) != everywhere || p.UpstreamMayIn(99, p).Permits(word) {
				t.Fatalf("%s: %s of the policy, in all states, in none", source, word)
			}
		}
	})
}

// What is wrong with a state's list is said where the word stands, in the file of a part, too.
func TestBadUpstreamMayOfStates(t *testing.T) {
	for body, want := range map[string]string{
		"a: {upstream_may: [sampling]}":          `test.yaml:5:22: error: upstream_may: the policy's own does not have "sampling", and a state can only take from it; remove it here, or add it at the top of the policy (upstream-may)`,
		"a: {upstream_may: [smpling]}":           `test.yaml:5:22: error: upstream_may: "smpling" is none of "sampling", "elicitation" or "roots"`,
		"a: {upstream_may: [roots, roots]}":      `"roots" stands in upstream_may a second time`,
		"a: {upstream_may: roots}":               "wants a list of",
		"a: {upstream_may: }":                    "wants a list of",
		"a: {terminal: true, upstream_may: [x]}": `"x" is none of`,
	} {
		p, findings := Parse("test.yaml", []byte("version: 1\ninitial: a\nupstream_may: [roots, elicitation]\nstates:\n  "+body+"\n"))
		if p != nil || !strings.Contains(fmt.Sprint(findings), want) {
			t.Errorf("%s: %v", body, findings)
		}
	}
	if p, findings := Parse("test.yaml", []byte("version: 1\ninitial: a\nstates:\n  a: {}\neverywhere: {upstream_may: [roots]}\n")); p != nil {
		t.Errorf("everywhere has one: %v", findings)
	}
	files := map[string]string{
		"policy.yaml": "version: 1\ninitial: a\nupstream_may: [roots]\nuse: {p: p.yaml}\nstates:\n  a: {part: p, exits: {out: b}}\n  b: {tools: [x]}\n",
		"p.yaml":      "version: 1\ninitial: i\nstates:\n  i: {upstream_may: [], tools: {x: out}}\n  j: {upstream_may: [roots], tools: {x: i}}\n  out: {terminal: true}\n",
	}
	p, findings := compileFiles(files)
	if findings.Err() != nil {
		t.Fatal(findings)
	}
	for state, want := range map[string]bool{"a/i": false, "a/j": true, "b": true} {
		s, ok := p.StateByName(state)
		if !ok || p.UpstreamMayIn(s, p) != (UpstreamMay{Roots: want}) {
			t.Errorf("%s: %v, %+v", state, ok, p.UpstreamMayIn(s, p))
		}
	}
	part := files["p.yaml"]
	files["p.yaml"] = strings.Replace(part, "[roots]", "[roots, sampling]", 1)
	if _, findings = compileFiles(files); !strings.Contains(fmt.Sprint(findings), `p.yaml:5:29: error: upstream_may: the policy's own does not have "sampling"`) {
		t.Error(findings)
	}
	files["p.yaml"], files["policy.yaml"] = part, strings.Replace(files["policy.yaml"], "{part: p,", "{part: p, upstream_may: [],", 1)
	if _, findings = compileFiles(files); !strings.Contains(fmt.Sprint(findings), `policy.yaml:6:16: error: upstream_may: beside "part"; write it in the states of the part's file (part)`) {
		t.Error(findings)
	}
}
