package report

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// way of a call, as a test draws it: each word is one that the file has, "" where it says nothing.
type drawnWay struct {
	For, When, Because, AtMost, Approve, Set, SetOn, Red, OnRed, OnSuccess string
	Exclusive, Irreversible                                                bool
}

func drawWay(t *rapid.T) drawnWay {
	pick := func(label string, words ...string) string {
		return rapid.SampledFrom(append([]string{""}, words...)).Draw(t, label)
	}
	w := drawnWay{
		When: pick("when", "args.n > 1.0", "args.n > 2.0"), Set: pick("set", "{c: {add: 1}}", "{c: none}"),
		AtMost: pick("at_most", "{run: 2}", "{state: 2}", "3"), Red: pick("red", "result.isError", "result.isError == false"),
		OnSuccess: pick("on_success", "b"), Exclusive: rapid.Bool().Draw(t, "exclusive"), Irreversible: rapid.Bool().Draw(t, "irreversible"),
	}
	w.For = pick("for", "{subject: ada}", "{subject: [ada, bob], claim: {team: [x]}}", "{scope: x}")
	w.Approve = pick("approve", "{by: operator}", "{by: client}", "{by: operator, timeout: 1m}", "{by: operator, message: Does it fit?}")
	if w.When != "" || w.AtMost != "" {
		w.Because = pick("because", "No.", "Not now.")
	}
	if w.Red != "" {
		w.OnRed = pick("on_red", "b")
	}
	if w.OnSuccess != "" {
		w.SetOn = pick("set on success", "{s: {add: name}}", "{s: none}")
	}
	return w
}

// yaml writes the way as a mapping.
func (w drawnWay) yaml() string {
	parts := []string{fmt.Sprintf("exclusive: %v, irreversible: %v", w.Exclusive, w.Irreversible)}
	add := func(key, value string) {
		if value != "" {
			parts = append(parts, key+": "+value)
		}
	}
	add("for", w.For)
	add("approve", w.Approve)
	add("when", w.When)
	add("because", w.Because)
	add("at_most", w.AtMost)
	add("set", w.Set)
	if w.Red != "" {
		add("outcomes", "{red: "+w.Red+"}")
	}
	add("on_red", w.OnRed)
	switch {
	case w.SetOn != "":
		add("on_success", "{to: "+w.OnSuccess+", set: "+w.SetOn+"}")
	default:
		add("on_success", w.OnSuccess)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// TestCompareOverlooksNoTerm draws the alternatives of one tool twice: the reload changes something
// where, and only where, what was drawn differs.
func TestCompareOverlooksNoTerm(t *testing.T) {
	draw := func(t *rapid.T, label string) []drawnWay {
		return rapid.SliceOfN(rapid.Custom(drawWay), 1, 3).Draw(t, label)
	}
	compile := func(t *rapid.T, ways []drawnWay) *policy.Policy {
		var all []string
		for _, w := range ways {
			all = append(all, w.yaml())
		}
		src := "version: 1\ninitial: a\nregisters: {c: counter, s: {set: text}}\nstates: {a: {tools: {x: [" + strings.Join(all, ", ") + "]}}, b: {tools: {y: a}}}\n"
		p, found := policy.Parse("p.yaml", []byte(src))
		if p == nil {
			t.Fatalf("%s\n%v", src, found)
		}
		return p
	}
	rapid.Check(t, func(t *rapid.T) {
		was := draw(t, "old")
		now := slices.Clone(was)
		switch i := rapid.IntRange(0, len(now)-1).Draw(t, "which"); rapid.IntRange(0, 3).Draw(t, "what") {
		case 0:
			now[i] = drawWay(t)
		case 1:
			now[0], now[i] = now[i], now[0]
		case 2:
			now = draw(t, "new")
		}
		old, new := compile(t, was), compile(t, now)
		changes := Compare(old, new)
		if same := reflect.DeepEqual(was, now); same != changes[0].Same() {
			t.Fatalf("same: %v, and it says\n%s", same, CompareText(old, new))
		}
	})
}

// Limits that are counted at another place are other limits, though their numbers are the same,
// and a state's new name is none.
func TestCompareTellsWhereLimitsCount(t *testing.T) {
	const head = "version: 1\ninitial: a\n"
	compare := func(old, new string) StateChange {
		return Compare(parse(t, "old.yaml", []byte(head+old)), parse(t, "new.yaml", []byte(head+new)))[0]
	}
	for name, test := range map[string]struct {
		old, new string
		same     bool
	}{
		"beside by, and in each case": {
			"states: {a: {tools: {x: {by: c, at_most: 3, cases: {d: stay, e: stay}}}}}",
			"states: {a: {tools: {x: {by: c, cases: {d: {at_most: 3}, e: {at_most: 3}}}}}}", false},
		"everywhere, and in the state": {
			"everywhere: {tools: {x: {at_most: 3}}}\nstates: {a: {tools: {y: }}}",
			"everywhere: {tools: {x: {at_most: 2}}}\nstates: {a: {tools: {y: , x: {at_most: 3}}}}", false},
		"of a glob, and of a name": {
			`states: {a: {tools: {"x*": {at_most: 3}}}}`, `states: {a: {tools: {"x*": {at_most: 3}, xy: {at_most: 3}}}}`, false},
		"of the state": {
			"states: {a: {at_most: 3, tools: {x: }}}", "states: {a: {at_most: 4, tools: {x: }}}", false},
		"of the same": {
			"states: {a: {at_most: 3, tools: {x: {at_most: 3}}}}", "states: {a: {at_most: 3, tools: {x: {at_most: 3}}}}", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := compare(test.old, test.new); got.Same() != test.same {
				t.Errorf("%+v", got)
			}
		})
	}
	renamed := Compare(parse(t, "old.yaml", []byte(head+"states: {a: {tools: {x: {at_most: 3}}}}")),
		parse(t, "new.yaml", []byte("version: 1\ninitial: b\nrenamed: {a: b}\nstates: {b: {tools: {x: {at_most: 3}}}}")))[0]
	if renamed.Change != StateRenamed || len(renamed.Names) > 0 {
		t.Errorf("%+v", renamed)
	}
}

// A reload that lifts an approval, or binds names for others, says so.
func TestCompareTellsWhoApprovesAndForWhom(t *testing.T) {
	compile := func(text string) *policy.Policy {
		return parse(t, "p.yaml", []byte("version: 1\ninitial: a\nstates:\n  a: "+text+"\n"))
	}
	old := compile("{for: {scope: build, claim: {https://x/roles: [a, true]}}, tools: {x: {by: k, for: {subject: ada}, approve: {by: operator, message: Is it?}, cases: {c: stay}}}}")
	want := `
a: kept
    for: none, was scope "build" && claim "https://x/roles": "a", true
    ~ tool  x [k=c]  for: none, was subject "ada"
                     approve: none, was by operator within 10m: Is it?
`
	if got := CompareText(old, compile("{tools: {x: {by: k, cases: {c: stay}}}}")); !strings.Contains(got, want) {
		t.Errorf("%s", got)
	}
	if got := CompareText(old, compile("{tools: {x: {by: k, for: {subject: [ada, bob]}, approve: {by: client, message: Is it?, timeout: 1m}, cases: {c: stay}}}}")); !strings.Contains(got, `for: subject "ada", "bob", was subject "ada"`) ||
		!strings.Contains(got, "approve: by client within 1m: Is it?, was by operator within 10m: Is it?") {
		t.Errorf("%s", got)
	}
	if changes := Compare(old, old); !changes[0].Same() {
		t.Errorf("%+v", changes)
	}
}

// What the upstream may ask in a state is compared as what holds there, whichever list says it.
func TestCompareTellsWhatTheUpstreamMayAsk(t *testing.T) {
	compile := func(all, own string) *policy.Policy {
		p, found := policy.Parse("p.yaml", []byte("version: 1\ninitial: a\n"+all+"states:\n  a: {"+own+"tools: [x]}\n  b: {tools: [y]}\n"))
		if p == nil {
			t.Fatal(found)
		}
		return p
	}
	old := compile("", "upstream_may: [roots], ")
	changes := Compare(old, compile("", ""))
	if len(changes[0].Terms) != 1 || changes[0].Terms[0].String() != "upstream_may: [sampling, elicitation, roots], was [roots]" || !changes[1].Same() {
		t.Errorf("%+v", changes)
	}
	changes = Compare(old, compile("upstream_may: [roots]\n", ""))
	if !changes[0].Same() || len(changes[1].Terms) != 1 || changes[1].Terms[0].String() != "upstream_may: [roots], was [sampling, elicitation, roots]" {
		t.Errorf("%+v", changes)
	}
}

// A reload that lifts what calls are held to is told, and one that changes nothing is not.
func TestCompareTellsOfSettings(t *testing.T) {
	const states = "version: 1\ninitial: a\nstates: {a: {tools: [x]}}\n"
	old := parse(t, "old.yaml", []byte(states+"validate: true\npin: refuse\ntemplates: empty\npassthrough: [b/b, a/a]\n"))
	new := parse(t, "new.yaml", []byte(states+"passthrough: [c/c, a/a]\n"))
	text := CompareText(old, new)
	for _, want := range []string{"  validate: false, was true\n", "  pin: off, was refuse\n", "  templates: refuse, was empty\n", "  passthrough: [a/a, c/c], was [a/a, b/b]\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if text := CompareText(old, old); strings.Contains(text, "validate") || strings.Contains(text, "pin") {
		t.Errorf("nothing has changed:\n%s", text)
	}
}
