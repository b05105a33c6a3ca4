package guard

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A condition is cut where && joins it, and nowhere else: not in texts, in parentheses, or within || and ?:.
func TestClauses(t *testing.T) {
	e := New(map[string]Kind{"plan": Text})
	for text, want := range map[string][]string{
		"args.a == 1":                {"args.a == 1"},
		"args.a == 1 && has(args.b)": {"args.a == 1", "has(args.b)"},
		"args.a == 'é && b' &&\n args.b == \"&&\"&&args.c.exists(x, x == 1 && x == 2)": {"args.a == 'é && b'", `args.b == "&&"`, "args.c.exists(x, x == 1 && x == 2)"},
		"(args.a && args.b) && args.c":                            {"(args.a && args.b)", "args.c"},
		"args.a && (args.b && args.c) && args.d":                  {"args.a", "(args.b && args.c)", "args.d"},
		"(args.a && args.b && args.c)":                            {"(args.a && args.b && args.c)"},
		"args.a || args.b && args.c":                              {"args.a || args.b && args.c"},
		"args.a ? args.b && args.c : args.d":                      {"args.a ? args.b && args.c : args.d"},
		"args.sql.matches(r'^a&&b$') && registers.plan == args.a": {"args.sql.matches(r'^a&&b$')", "registers.plan == args.a"},
	} {
		whole, problems := e.Guard(text)
		if whole == nil {
			t.Fatal(text, problems)
		}
		var got []string
		for _, p := range e.Clauses(whole) {
			got = append(got, p.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// TestClausesHold draws conditions: one holds if, and only if, all of its clauses do.
func TestClausesHold(t *testing.T) {
	atoms := []string{"args.a == 1.0", "args.b", "(args.a == 1.0 || args.b)", "(args.b && has(args.c))", "args.c == 'x && y'", "!(args.b && args.b)", "(has(args.c) ? args.b : args.b && args.b)"}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom(atoms).Draw(t, "atom")
		for range rapid.IntRange(0, 6).Draw(t, "more") {
			text += rapid.SampledFrom([]string{" && ", "&&", " &&\n", " || "}).Draw(t, "operator") + rapid.SampledFrom(atoms).Draw(t, "atom")
			if rapid.Bool().Draw(t, "parentheses") {
				text = "(" + text + ")"
			}
		}
		e := New(nil)
		whole, problems := e.Guard(text)
		if whole == nil {
			t.Fatal(text, problems)
		}
		call := &Call{Args: []byte(rapid.SampledFrom([]string{`{}`, `{"a":1}`, `{"a":1,"b":true}`, `{"b":true,"c":"x && y"}`, `{"a":1,"b":true,"c":"x && y"}`, `{"b":1}`}).Draw(t, "args"))}
		all := true
		for _, clause := range e.Clauses(whole) {
			holds, _ := clause.Holds(call)
			all = all && holds
		}
		if holds, _ := whole.Holds(call); holds != all {
			t.Fatalf("%s is %v, its clauses %v", text, holds, all)
		}
	})
}
