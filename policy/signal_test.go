package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const waits = `version: 1
initial: idle
everywhere:
  signals: {give_up: {to: idle, description: Stop here.}}
states:
  idle: {signals: {give_up: none}, tools: [give_up]}
  waiting:
    signals: {approved: {to: done, from: operator}, again: stay}
  alone: {everywhere: false, signals: {approved: waiting}}
  done: {terminal: true}
`

func signalled(t *testing.T, p *Policy, state, name string) Verdict {
	t.Helper()
	s, ok := p.StateByName(state)
	if !ok {
		t.Fatal(state)
	}
	return p.Decide(Configuration{State: s}, &Request{Kind: Signal, Name: name, Listed: true})
}

func TestSignalsAreDecidedForTheAgent(t *testing.T) {
	p := parse(t, "p.yaml", []byte(waits))
	for _, x := range []struct {
		state, name string
		want        Code
	}{
		{"idle", "give_up", InvalidTransition}, {"waiting", "give_up", CodeNone}, {"waiting", "again", CodeNone},
		{"waiting", "approved", InvalidTransition}, {"alone", "approved", CodeNone}, {"alone", "give_up", InvalidTransition},
		{"waiting", "idle", UnknownAction}, {"waiting", "aga*", UnknownAction}, {"done", "give_up", InvalidTransition},
	} {
		v := signalled(t, p, x.state, x.name)
		if v.Code != x.want || v.Allowed != (x.want == CodeNone) || v.Allowed && !v.Turn {
			t.Errorf("%s in %s: %+v", x.name, x.state, v)
		}
	}
	if got := p.Exact(Signal); !slices.Equal(got, []string{"give_up", "again", "approved"}) {
		t.Error(got)
	}
}

// To the agent an operator's signal is what a name is that nobody has written.
func TestOperatorsSignalsDoNotExistForTheAgent(t *testing.T) {
	src := strings.Replace(waits, "signals: {approved: waiting}", "tools: [look]", 1)
	p := parse(t, "p.yaml", []byte(src))
	for s := range p.States() {
		at := Configuration{State: State(s)}
		v, guessed := p.Decide(at, &Request{Kind: Signal, Name: "approved", Listed: true}), p.Decide(at, &Request{Kind: Signal, Name: "approve", Listed: true})
		if v.Allowed || v.Bound || v.Code != guessed.Code {
			t.Errorf("%s: %+v and %+v", p.StateName(State(s)), v, guessed)
		}
		if slices.Contains(p.ExactIn(View{Configuration: at}, Signal), "approved") {
			t.Error(p.ExactIn(View{Configuration: at}, Signal))
		}
	}
	if p.BoundAnywhere(Signal, "approved", true) || slices.Contains(p.Exact(Signal), "approved") || p.BoundIn(Signal, "approved", true) != nil ||
		p.DecideAnywhere(&Request{Kind: Signal, Name: "approved", Listed: true}).Allowed {
		t.Error("it is bound for the agent")
	}
}

// A name that is a signal's and a tool's is two symbols.
func TestASignalIsNoTool(t *testing.T) {
	p := parse(t, "p.yaml", []byte(`{version: 1, initial: a, states: {a: {tools: {go: stay, "fsm_*": stay}, signals: {go: b}}, b: {}}}`))
	if v := p.Decide(p.Initial(), &Request{Kind: Tool, Name: "go", Listed: true}); !v.Allowed || v.Turn {
		t.Errorf("%+v", v)
	}
	v := p.Decide(p.Initial(), &Request{Kind: Signal, Name: "go", Listed: true})
	step, err := p.Next(p.Initial(), v.Symbol, Success)
	if err != nil || p.StateName(step.To.State) != "b" {
		t.Errorf("%+v %v", step, err)
	}
}

func TestWrongSignals(t *testing.T) {
	long := strings.Repeat("n", 65)
	for src, want := range map[string]string{
		"a: {signals: [go]}":                                          "p.yaml:4:16: error: signals: wants",
		"a: {signals: {go: }}":                                        "p.yaml:4:21: error: go:",
		"a: {signals: {go: nowhere}}":                                 "p.yaml:4:21: error: target: \"nowhere\" is no state",
		"a: {signals: {go: {to: nowhere}}}":                           "p.yaml:4:26: error: target: \"nowhere\" is no state",
		"a: {signals: {go: {}}}":                                      "p.yaml:4:21: error: go: an empty mapping",
		"a: {signals: {go: {from: server}}}":                          "p.yaml:4:28: error: from:",
		"a: {signals: {go: {on_success: a}}}":                         "p.yaml:4:22: error: \"on_success\" is no key of a signal",
		"a: {signals: {g/o: a}}":                                      "p.yaml:4:17: error: \"g/o\" is no name for a signal",
		"a: {signals: {\"g\\no\": a}}":                                "p.yaml:4:17: error: \"g\\no\" is no name for a signal",
		"a: {signals: {\"g*\": a}}":                                   "p.yaml:4:17: error: \"g*\" is no name for a signal",
		"a: {signals: {" + long + ": a}}":                             "is no name for a signal",
		"a: {terminal: true, signals: {go: a}}\n  b: {tools: {x: a}}": "binds \"go\"",
		"a: {signals: {go: a}, tools: [fsm_signal]}":                  "p.yaml:4:33: error: fsm_signal is the proxy's own tool",
	} {
		_, found := Parse("p.yaml", []byte("version: 1\ninitial: a\nstates:\n  "+src+"\n"))
		if !strings.Contains(found.String(), want) {
			t.Errorf("%s\n got %v\nwant %s", src, found, want)
		}
	}
	for _, src := range []string{
		`{tools: [fsm_signal]}`, `{tools: [fsm_signal], signals: {go: {from: operator}}}`, `{tools: {fsm_signal: none}, signals: {go: a}}`,
	} {
		parse(t, "p.yaml", []byte("{version: 1, initial: a, states: {a: "+src+"}}"))
	}
}

// TestSignalsAgainstModel compares what is compiled with the naive reading.
func TestSignalsAgainstModel(t *testing.T) {
	values := []string{"", "none", "stay", "s0", "s1", "s2", "{to: s1, from: operator}", "{from: operator}"}
	names := []string{"x", "y"}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string) map[string]string {
			said := map[string]string{}
			for _, n := range names {
				if v := rapid.SampledFrom(values).Draw(t, what+n); v != "" {
					said[n] = v
				}
			}
			return said
		}
		all, own, without := draw("everywhere"), [3]map[string]string{}, [3]bool{}
		src := "version: 1\ninitial: s0\neverywhere: " + yamlOf(all) + "\nstates:\n"
		for s := range own {
			own[s], without[s] = draw(fmt.Sprint("s", s)), rapid.Bool().Draw(t, "without")
			src += fmt.Sprintf("  s%d: {everywhere: false, ", s)
			if !without[s] {
				src = strings.TrimSuffix(src, "everywhere: false, ")
			}
			src += strings.TrimPrefix(yamlOf(own[s]), "{") + "\n"
		}
		p, found := Parse("m.yaml", []byte(src))
		if p == nil {
			t.Fatalf("%s\n%v", src, found)
		}
		says := func(s int, name string) string {
			if v, ok := own[s][name]; ok || without[s] {
				return v
			}
			return all[name]
		}
		to := func(s int, v string) State {
			for i := range own {
				if v == fmt.Sprint("s", i) || strings.Contains(v, fmt.Sprint("to: s", i)) {
					return State(i)
				}
			}
			return State(s)
		}
		operatorsAgree(t, p, len(own), names, says, to)
		agents := func(v string) bool { return v != "" && v != "none" && !strings.Contains(v, "operator") }
		for s := range own {
			for _, name := range names {
				v, at := says(s, name), Configuration{State: State(s)}
				got, want := p.Decide(at, &Request{Kind: Signal, Name: name, Listed: true}), UnknownAction
				for other := range own {
					if agents(says(other, name)) {
						want = InvalidTransition
					}
				}
				if !agents(v) {
					if got.Allowed || got.Code != want {
						t.Fatalf("%s in s%d: %+v, want %v\n%s", name, s, got, want, src)
					}
					continue
				}
				step, err := p.Next(at, got.Symbol, Success)
				if !got.Allowed || !got.Turn || err != nil || step.To.State != to(s, v) {
					t.Fatalf("%s in s%d: %+v %+v %v\n%s", name, s, got, step, err, src)
				}
			}
		}
	})
}

// operatorsAgree compares what an operator may send with the naive reading: all that a state says, whoever else may.
func operatorsAgree(t *rapid.T, p *Policy, states int, names []string, says func(s int, name string) string, to func(s int, v string) State) {
	bound := func(v string) bool { return v != "" && v != "none" }
	for s := range states {
		at := Configuration{State: State(s)}
		sendable := map[string]Sendable{}
		for _, x := range p.Sendable(at, nil) {
			if _, twice := sendable[x.Name]; twice {
				t.Fatalf("%s is listed twice in s%d", x.Name, s)
			}
			sendable[x.Name] = x
		}
		for _, name := range names {
			v, got, want := says(s, name), p.Decide(at, &Request{Kind: Signal, Name: name, From: Operator}), UnknownAction
			anywhere := false
			for other := range states {
				anywhere = anywhere || bound(says(other, name))
			}
			x, listed := sendable[name]
			if anywhere {
				want = InvalidTransition
			}
			if anywhere != p.DecideAnywhere(&Request{Kind: Signal, Name: name, From: Operator}).Allowed || listed != bound(v) || got.Allowed != bound(v) || !got.Allowed && got.Code != want {
				t.Fatalf("%s in s%d: %+v, listed %v, anywhere %v", name, s, got, listed, anywhere)
			}
			if !bound(v) {
				continue
			}
			step, err := p.Next(at, got.Symbol, Success)
			if !got.Turn || err != nil || step.To.State != to(s, v) || x.To != p.StateName(step.To.State) || (x.From == Operator) != strings.Contains(v, "operator") {
				t.Fatalf("%s in s%d: %+v %+v %v", name, s, step, x, err)
			}
		}
		if done := (Configuration{State: State(s), Complete: true}); p.Decide(done, &Request{Kind: Signal, Name: names[0], From: Operator}).Code != RunComplete || p.Sendable(done, nil) != nil {
			t.Fatal("what is complete takes signals")
		}
	}
}

func yamlOf(signals map[string]string) string {
	var said []string
	for name, v := range signals {
		said = append(said, name+": "+v)
	}
	slices.Sort(said)
	return "{signals: {" + strings.Join(said, ", ") + "}}"
}
