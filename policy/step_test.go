package policy

import (
	"strings"
	"sync"
	"testing"
)

func stateOf(t testing.TB, p *Policy, name string) State {
	t.Helper()
	s, ok := p.StateByName(name)
	if !ok {
		t.Fatalf("no state %q", name)
	}
	return s
}

// TestCrossroads walks the reference automaton along every edge.
func TestCrossroads(t *testing.T) {
	p := load(t, "../policies/crossroads.yaml")
	for _, c := range []struct {
		from, tool string
		outcome    Outcome
		entered    string
		terminal   bool
	}{
		{"entry", "open_door", Success, "crossroad", false},
		{"entry", "open_door", Error, "entry", false},
		{"entry", "open_door", Unknown, "entry", false},
		{"crossroad", "press_button", Success, "crossroad", false},
		{"crossroad", "press_button", Error, "crossroad", false},
		{"crossroad", "choose_left_path", Success, "door_left", false},
		{"crossroad", "choose_left_path", Error, "crossroad", false},
		{"crossroad", "choose_right_path", Success, "door_right", false},
		{"crossroad", "choose_right_path", Error, "crossroad", false},
		{"door_left", "pick_up_key", Success, "door_left", false},
		{"door_left", "pick_up_key", Error, "door_left", false},
		{"door_left", "open_door_with_key", Success, "door_left", true},
		{"door_left", "open_door_with_key", Error, "rollback_left", false},
		{"door_left", "open_door_with_key", Unknown, "rollback_left", false},
		{"door_right", "open_door_with_key", Success, "door_right", true},
		{"door_right", "open_door_with_key", Error, "rollback_right", false},
		{"rollback_left", "go_back", Success, "crossroad", false},
		{"rollback_left", "go_back", Error, "rollback_left", false},
		{"rollback_left", "open_door_with_key", Success, "door_left", true},
		{"rollback_left", "open_door_with_key", Error, "rollback_left", false},
		{"rollback_right", "go_back", Success, "crossroad", false},
		{"rollback_right", "open_door_with_key", Success, "door_right", true},
		{"rollback_right", "open_door_with_key", Error, "rollback_right", false},
	} {
		from := Configuration{State: stateOf(t, p, c.from)}
		v := p.Decide(from, &Request{Kind: Tool, Name: c.tool})
		if !v.Allowed {
			t.Fatalf("%s in %s: %v", c.tool, c.from, v.Code)
		}
		got, err := p.Next(from, v.Symbol, c.outcome)
		if err != nil {
			t.Fatal(err)
		}
		want := Step{From: from, Entered: stateOf(t, p, c.entered), Terminal: c.terminal, Restarted: c.terminal}
		want.To = Configuration{State: want.Entered}
		if c.terminal {
			want.To = p.Initial()
		}
		want.Changed = c.terminal || c.entered != c.from
		if got != want {
			t.Errorf("%s in %s on %s: %+v, want %+v", c.tool, c.from, c.outcome, got, want)
		}
	}
}

const edgesSource = `
version: 1
initial: a
on_complete: ON_COMPLETE
everywhere: {tools: {reset: {on_any: {to: a}}, quit: {on_any: {terminal: true}}}}
states:
  a:
    tools:
      short: b
      error_only: {on_error: b}
      any: {on_any: b}
      any_but: {on_any: b, on_error: stay}
      unknown: {on_success: b, on_unknown: a/complete}
      to_end: end
      end_here: {on_success: {terminal: true}}
      end_there: {on_success: {to: b, terminal: true}}
      end_stay: {on_success: {to: stay, terminal: true}}
      split: {by: c, cases: {go: b, wait: stay}}
      "glob_*": b
  b: {tools: {back: a}}
  a/complete: {tools: {back: a}}
  end: {terminal: true}
`

func edgesPolicy(t testing.TB, onComplete string) *Policy {
	return parse(t, "edges.yaml", []byte(strings.Replace(edgesSource, "ON_COMPLETE", onComplete, 1)))
}

// TestOutcomes gives for each tool of state a where success, error and unknown
// lead; ! marks completion.
func TestOutcomes(t *testing.T) {
	for tool, want := range map[string]string{
		"short":      "b a a",
		"error_only": "a b b",
		"any":        "b b b",
		"any_but":    "b a b",
		"unknown":    "b a a/complete",
		"to_end":     "end! a a",
		"end_here":   "a! a a",
		"end_there":  "b! a a",
		"end_stay":   "a! a a",
		"glob_x":     "b a a",
		"reset":      "a a a",
		"quit":       "a! a! a!",
	} {
		for _, onComplete := range []string{"restart", "stop"} {
			p := edgesPolicy(t, onComplete)
			for i, o := range AllOutcomes {
				step, err := p.Next(p.Initial(), Symbol{Kind: Tool, Name: tool}, o)
				if err != nil {
					t.Fatal(err)
				}
				checkStep(t, p, tool+" on "+o.String(), step, strings.Fields(want)[i])
			}
		}
	}
}

func checkStep(t *testing.T, p *Policy, title string, got Step, entered string) {
	t.Helper()
	name, terminal := strings.CutSuffix(entered, "!")
	want := Step{From: p.Initial(), Entered: stateOf(t, p, name), Terminal: terminal}
	want.To = Configuration{State: want.Entered}
	switch {
	case terminal && p.OnComplete() == Restart:
		want.To, want.Restarted = p.Initial(), true
	case terminal:
		want.To.Complete = true
	}
	want.Changed = want.From != want.To || want.Restarted
	if got != want {
		t.Errorf("%s, %s: %+v, want %+v", title, p.OnComplete(), got, want)
	}
}

func TestEverywhereIsTakenWhereTheRunIs(t *testing.T) {
	p := edgesPolicy(t, "stop")
	b := stateOf(t, p, "b")
	step, err := p.Next(Configuration{State: b}, Symbol{Name: "quit"}, Error)
	if err != nil || step.To != (Configuration{State: b, Complete: true}) {
		t.Errorf("quit in b: %+v, %v", step, err)
	}
	step, err = p.Next(Configuration{State: b}, Symbol{Name: "reset"}, Unknown)
	if err != nil || step.To != p.Initial() || !step.Changed || step.Terminal {
		t.Errorf("reset in b: %+v, %v", step, err)
	}
}

func TestNextOfCases(t *testing.T) {
	p := edgesPolicy(t, "stop")
	for text, changed := range map[string]bool{"go": true, "wait": false} {
		step, err := p.Next(p.Initial(), Symbol{Name: "split", Case: text}, Success)
		if err != nil || step.Changed != changed {
			t.Errorf("%s: %+v, %v", text, step, err)
		}
	}
}

func TestNextErrors(t *testing.T) {
	p := edgesPolicy(t, "stop")
	for want, c := range map[string]struct {
		at      Configuration
		symbol  Symbol
		outcome Outcome
	}{
		`stepping tool "nothing": not bound in state "a"`:       {Configuration{}, Symbol{Name: "nothing"}, Success},
		`stepping tool "any": not bound in state "b"`:           {Configuration{State: 1}, Symbol{Name: "any"}, Success},
		`stepping tool "any": not bound in state "a", complete`: {Configuration{Complete: true}, Symbol{Name: "any"}, Success},
		`stepping tool "any": not bound in state 77, which`:     {Configuration{State: 77}, Symbol{Name: "any"}, Success},
		`stepping tool "split": no case "" in state "a"`:        {Configuration{}, Symbol{Name: "split"}, Success},
		`stepping tool "any": Outcome(0) is no outcome`:         {Configuration{}, Symbol{Name: "any"}, 0},
		`stepping tool "any": Outcome(4) is no outcome`:         {Configuration{}, Symbol{Name: "any"}, 4},
		`stepping prompt "any": not bound in state "a"`:         {Configuration{}, Symbol{Kind: Prompt, Name: "any"}, Success},
		`stepping tool "short": not bound in state "end"`:       {Configuration{State: 3}, Symbol{Name: "short"}, Success},
		`stepping Kind(9) "any": not bound in state "a"`:        {Configuration{}, Symbol{Kind: 9, Name: "any"}, Success},
	} {
		step, err := p.Next(c.at, c.symbol, c.outcome)
		if err == nil || !strings.HasPrefix(err.Error(), want) || step != (Step{}) {
			t.Errorf("%v, %+v; want %s", err, step, want)
		}
	}
}

// TestMachineAnswers tampers with the table once the machines are built: the next
// state is the machine's answer, and what a machine does not know is an error.
func TestMachineAnswers(t *testing.T) {
	p := edgesPolicy(t, "stop")
	m := p.machines.New()
	p.machines.New = func() any { return m }
	p.states[0].own[Tool].exact["any"].Cases[0].Alternatives[0].edges[0].State = stateOf(t, p, "end")
	if step, err := p.Next(p.Initial(), Symbol{Name: "any"}, Success); err != nil || step.Entered != stateOf(t, p, "b") {
		t.Errorf("%+v, %v", step, err)
	}
	p.states[0].own[Tool].exact["short"].Cases[0].Alternatives[0].edges[0].event = "no such event"
	if _, err := p.Next(p.Initial(), Symbol{Name: "short"}, Success); err == nil || !strings.Contains(err.Error(), "no such event") {
		t.Errorf("err = %v", err)
	}
}

// TestConcurrentUse uses one policy from many goroutines.
func TestConcurrentUse(t *testing.T) {
	p := load(t, "../policies/crossroads.yaml")
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			c := p.Initial()
			for range 200 {
				for _, tool := range []string{"open_door", "choose_left_path", "open_door_with_key"} {
					v := p.Decide(c, &Request{Kind: Tool, Name: tool, Listed: true})
					step, err := p.Next(c, v.Symbol, Success)
					if !v.Allowed || err != nil {
						t.Errorf("%s: %+v, %v", tool, v, err)
						return
					}
					c = step.To
				}
			}
		})
	}
	all.Wait()
}
