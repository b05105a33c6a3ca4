package play

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/model"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

const shop = `version: 1
initial: idle
registers: {seen: {set: text}, plan: text}
states:
  idle:
    signals: {approved: {to: done, from: operator}}
    tools:
      read: {set: {seen: {add: args.path}}}
      edit: {when: args.path in registers.seen, because: Read it first.}
      tests: {outcomes: {red: result.structuredContent.failed > 0}, on_red: fixing, on_success: done, on_unknown: fixing}
      pay: {at_most: {minute: 1}}
      run: {by: command, cases: {npm test: stay, "git *": stay, none of it: none}}
      mine: {when: who.subject == "ada"}
      "list_*": stay
  fixing: {after: {30m: idle}, tools: {tests: {on_success: idle}}}
  done: {tools: {back: idle}}
`

// playing plays the steps, each of which is written as a test file has it, as one test.
func playing(t *testing.T, source, top string, steps ...string) (failures []string, covered *Coverage) {
	t.Helper()
	p, found := policy.Parse("p.yaml", []byte(source))
	if p == nil {
		t.Fatal(found)
	}
	text := "version: 1\npolicy: p.yaml\n" + top + "tests:\n- name: one\n  steps:\n  - " + strings.Join(steps, "\n  - ") + "\n"
	f, found := Read("p.test.yaml", []byte(text))
	if f == nil {
		t.Fatalf("%s\n%v", text, found)
	}
	covered = NewCoverage(p)
	for _, x := range f.Play(p, &f.Tests[0], covered) {
		failures = append(failures, fmt.Sprintf("%d:%d: %s", x.Place.Line, x.Place.Column, x.Text))
	}
	return failures, covered
}

// What is expected, and is so, passes.
func TestPlayPasses(t *testing.T) {
	for name, steps := range map[string][]string{
		"registers":   {"{tool: edit, args: {path: a}, refused: guard_failed, because: Read it first.}", "{tool: read, args: {path: a}, registers: {seen: [a], plan: null}}", "{tool: edit, args: {path: a}, state: idle}"},
		"sets":        {"{tool: read, args: {path: b}}", "{tool: read, args: {path: a}, registers: {seen: [a, b]}}"},
		"outcomes":    {"{tool: tests, answer: {result: {structuredContent: {failed: 2}}}, state: fixing}"},
		"no outcome":  {"{tool: tests, answer: success, state: fixing}"}, // there is no structuredContent: unknown
		"an error":    {"{tool: tests, answer: error, state: idle}"},
		"said error":  {"{tool: tests, answer: {result: {isError: true}}, state: idle}"},
		"unknown":     {"{tool: tests, answer: unknown, state: fixing}"},
		"limits":      {"tool: pay", "{tool: pay, refused: limit_reached}", "wait: 1m", "tool: pay"},
		"signals":     {"{signal: approved, refused: unknown_action, lists: {signals: []}}", "{signal: approved, from: operator, state: done}"},
		"cases":       {"{tool: run, args: {command: git push}}", "{tool: run, args: {command: rm}, refused: unknown_case}", "{tool: run, args: {command: none of it}, refused: unknown_case}"},
		"who":         {"{tool: mine, refused: guard_failed}", "{tool: mine, who: {subject: ada}}"},
		"a clock":     {"{tool: tests, answer: unknown}", "{wait: 29m, state: fixing}", "{wait: 1m, state: idle}"},
		"two clocks":  {"{tool: tests, answer: unknown}", "{wait: 10h, state: idle}"},
		"other state": {"{tool: back, refused: invalid_transition}", "{tool: nothing, refused: unknown_action}"},
	} {
		t.Run(name, func(t *testing.T) {
			if failures, _ := playing(t, shop, "", steps...); failures != nil {
				t.Error(failures)
			}
		})
	}
}

// What is expected, and is not so, fails where it stands, with what came in its place.
func TestPlayFails(t *testing.T) {
	for step, want := range map[string]string{
		"{tool: edit, args: {path: a}}":                                                  "6:5: tool edit is refused in idle: guard_failed by p.yaml:9:7",
		"{tool: pay, refused: limit_reached}":                                            "6:26: tool pay is allowed by p.yaml:11:7, want limit_reached",
		"{tool: back, refused: unknown_action}":                                          "6:27: tool back is refused with invalid_transition, want unknown_action",
		"{tool: edit, args: {path: a}, refused: guard_failed, because: No.}":             `6:67: told is "Read it first.", want "No."`,
		"{tool: back, refused: invalid_transition, because: No.}":                        `6:56: nothing is told, want "No."`,
		"{tool: pay, state: done}":                                                       "6:24: the state is idle, want done",
		"{tool: pay, state: dome}":                                                       "6:24: the state is idle, want dome, which is no state of the policy",
		"{tool: read, args: {path: a}, registers: {seen: [b]}}":                          `6:47: register seen is ["a"], want ["b"]`,
		"{tool: pay, registers: {sin: 1}}":                                               `6:29: "sin" is no register of the policy`,
		"{tool: pay, lists: {signals: [approved]}}":                                      "6:17: the signals shown are [], want [approved]",
		"{tool: pay, lists: {tools: [pay]}}":                                             "6:17: the tools shown are [edit, pay, read, run, tests], want [pay]",
		"{wait: 1m, state: done}":                                                        "6:23: the state is idle, want done",
		"{tool: read, args: {path: 5}}":                                                  "6:5: tool read is refused in idle: guard_failed by p.yaml:8:7, ",
		"{tool: tests, answer: {result: {structuredContent: {failed: x}}}, state: done}": "the state is fixing, want done",
	} {
		t.Run(step, func(t *testing.T) {
			failures, _ := playing(t, shop, "", step)
			if len(failures) != 1 || !strings.Contains(failures[0], want) {
				t.Errorf("got %q, want %q", failures, want)
			}
		})
	}
}

// What the server lists decides what globs bind, and what is shown.
func TestPlayListed(t *testing.T) {
	const listed = "listed: {tools: [pay, list_a, other]}\n"
	failures, _ := playing(t, shop, listed, "{tool: list_a, lists: {tools: [pay, list_a]}}", "{tool: list_b, refused: unknown_action}")
	if failures != nil {
		t.Error(failures)
	}
	if failures, _ = playing(t, shop, "", "{tool: list_b}"); failures != nil {
		t.Error(failures)
	}
}

// Each state, edge and side of a guard is covered by what has been there, and by nothing else.
func TestCoverage(t *testing.T) {
	_, covered := playing(t, `version: 1
initial: a
states:
  a:
    tools:
      x: {when: args.n > 1, on_success: b, on_error: stay}
      y: [{when: args.n > 1}, {when: args.n > 2}]
  b: {after: {1h: a}, tools: {z: a}}
`, "", "{tool: x, args: {n: 2}}", "{wait: 1h, state: a}", "{tool: y, args: {n: 2}}", "{tool: y, args: {n: x}, refused: guard_failed}")
	want := []string{
		"p.yaml:6:17: when args.n > 1: false",
		"p.yaml:6:10: tool x on error", "p.yaml:7:18: when args.n > 1: false",
		"p.yaml:7:38: when args.n > 2: false", "p.yaml:7:38: when args.n > 2: true",
		"p.yaml:7:31: tool y [2] on success", "p.yaml:8:34: tool z on success",
	}
	got := covered.Missing()
	for _, x := range want {
		if !strings.Contains(strings.Join(got, "\n"), x[strings.LastIndex(x, ": ")+2:]) {
			t.Errorf("nothing is said of %s", x)
		}
	}
	if seen, all := covered.Counts(); all-seen != len(want) || len(got) != len(want) {
		t.Errorf("%d of %d seen, want %d missing:\n%s", seen, all, len(want), strings.Join(got, "\n"))
	}
}

// TestPlaySaysWhatPoliciesDo draws policies and calls, and reads what becomes of each in the table: a
// test that expects that passes, and one that expects another state fails.
func TestPlaySaysWhatPoliciesDo(t *testing.T) {
	names := []string{"a", "b", "ab", "aab", "fin"}
	rapid.Check(t, func(t *rapid.T) {
		source := rapid.Custom(func(t *rapid.T) string { return model.Draw(t).YAML() }).Draw(t, "policy")
		p, _ := policy.Parse("m.yaml", []byte(source))
		if p == nil {
			t.Skip("globs contradict each other")
		}
		at, text := p.Initial(), "version: 1\npolicy: m.yaml\ntests:\n- name: one\n  steps:\n"
		for range rapid.IntRange(1, 8).Draw(t, "calls") {
			name, of := rapid.SampledFrom(names).Draw(t, "name"), rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "argument")
			o := rapid.SampledFrom(policy.AllOutcomes[:]).Draw(t, "outcome")
			v := p.Decide(at, &policy.Request{Name: name, Listed: true, Args: policy.Lookup(func([]string) policy.Argument { return policy.Text(of) })})
			if !v.Allowed {
				text += fmt.Sprintf("  - {tool: %s, args: {c: '%s'}, refused: %s, state: %s}\n", name, of, v.Code, p.StateName(at.State))
				continue
			}
			step, err := p.Next(at, v.Symbol, o)
			if err != nil {
				t.Fatal(err)
			}
			at = step.To
			text += fmt.Sprintf("  - {tool: %s, args: {c: '%s'}, answer: %s, state: %s}\n", name, of, o, p.StateName(at.State))
		}
		play := func(text string) []Failure {
			f, found := Read("t", []byte(text))
			if f == nil {
				t.Fatalf("%v\n%s", found, text)
			}
			return f.Play(p, &f.Tests[0], NewCoverage(p))
		}
		if failures := play(text); failures != nil {
			t.Fatalf("%v\n%s\n%s", failures, source, text)
		}
		if i := strings.LastIndex(text, "state: "); play(text[:i]+"state: elsewhere}\n") == nil {
			t.Fatalf("it passes, in whatever state:\n%s", text)
		}
	})
}

// Whoever is asked to approve a call says what the step has them say, and the run remembers it.
func TestPlayApprovals(t *testing.T) {
	const source = "version: 1\ninitial: a\nstates:\n  a:\n    tools:\n      look: stay\n      pay: {when: args.n < 9, approve: {by: operator, timeout: 1m}, on_success: b, on_unknown: b}\n" +
		"      note: {approve: {by: client}}\n      most: {at_most: 1, approve: {by: operator}}\n  b: {tools: {back: a}}\n"
	for name, steps := range map[string][]string{
		"yes":            {"{tool: pay, args: {n: 1}, approve: allow, state: b}"},
		"no":             {"{tool: pay, args: {n: 1}, approve: deny, refused: approval_denied, state: a}", "{tool: pay, args: {n: 1}, refused: approval_denied}", "{tool: pay, args: {n: 2}, approve: allow, state: b}"},
		"nobody":         {"{tool: pay, args: {n: 1}, refused: approval_pending}", "{tool: pay, args: {n: 1}, approve: allow, state: b}"},
		"too late":       {"{tool: pay, args: {n: 1}, refused: approval_pending}", "{wait: 1m}", "{tool: pay, args: {n: 1}, refused: approval_denied}", "{tool: pay, args: {n: 1}, refused: approval_pending}"},
		"of the visit":   {"{tool: pay, args: {n: 1}, refused: approval_pending}", "{tool: pay, args: {n: 2}, approve: allow, state: b}", "{tool: back}", "{tool: pay, args: {n: 1}, refused: approval_pending}"},
		"a client":       {"{tool: note, approve: allow}", "{tool: note, approve: deny, refused: approval_denied}"},
		"refused before": {"{tool: pay, args: {n: 9}, refused: guard_failed}"},
		"once":           {"{tool: most, approve: allow}", "{tool: most, refused: limit_reached}"},
	} {
		if failures, _ := playing(t, source, "", steps...); len(failures) > 0 {
			t.Errorf("%s: %v", name, failures)
		}
	}
	for step, want := range map[string]string{
		"{tool: pay, args: {n: 1}}":                                       "6:5: tool pay waits for an approval (p.yaml:7:7); say of the step approve: allow, approve: deny, or refused: approval_pending",
		"{tool: pay, args: {n: 1}, approve: deny}":                        "6:5: tool pay is refused in a: approval_denied by p.yaml:7:7, it was not approved, and is not as long as the run is in this state",
		"{tool: pay, args: {n: 1}, approve: allow, refused: busy}":        "is allowed by p.yaml:7:7, want busy",
		"{tool: look, approve: allow}":                                    "6:5: tool look is asked of nobody: no approve of the policy holds for it, or it is refused before",
		"{tool: pay, args: {n: 9}, approve: deny, refused: guard_failed}": "6:5: tool pay is asked of nobody",
	} {
		if failures, _ := playing(t, source, "", step); len(failures) != 1 || !strings.Contains(failures[0], want) {
			t.Errorf("%s: %q, want %s", step, failures, want)
		}
	}
	_, covered := playing(t, source, "", "{tool: pay, args: {n: 1}, approve: deny, refused: approval_denied}")
	if missing := strings.Join(covered.Missing(), "\n"); !strings.Contains(missing, "p.yaml:7:31: approve: allow") || strings.Contains(missing, "p.yaml:7:31: approve: deny") {
		t.Error(missing)
	}
}
