package explain

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"

	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
)

func plain(_ Look, text string) string { return text }

// Of every name that the ready policies bind, in every state, the verdict is the policy's, and each step has its line.
func TestReadyPolicies(t *testing.T) {
	files, err := filepath.Glob("../../policies/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".test.yaml") {
			continue
		}
		p, _, err := policyfile.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for s, info := range p.States() {
			for b := range p.Bindings() {
				if info.Terminal {
					continue
				}
				q := &Question{State: policy.State(s), Kind: b.Kind, Name: strings.ReplaceAll(b.Pattern, "*", "x"), From: b.From, Args: []byte(`{"a":1}`), Now: time.Unix(0, 0)}
				if b.Kind == policy.Resource || b.Kind == policy.Signal {
					q.Args = nil
				}
				explained(t, p, q)
			}
		}
	}
}

// explained explains a call, and compares that with the policy's own decision.
func explained(t *testing.T, p *policy.Policy, q *Question) *Explanation {
	t.Helper()
	x, err := Explain(p, q)
	if err != nil {
		t.Fatalf("%s in %s: %v", q.Name, p.StateName(q.State), err)
	}
	facts := &guard.Call{Name: q.Name, Args: q.Args, Now: q.Now, Run: guard.Run{State: x.State, Began: q.Now, Entered: q.Now}}
	v := p.Decide(policy.Configuration{State: q.State}, &policy.Request{Kind: q.Kind, Name: q.Name, From: q.From, Listed: true, Facts: facts})
	goes := x.Verdict == Sent || x.Verdict == Taken || x.Verdict == Held
	if v.Alternative != nil && v.Alternative.Remembers() && x.Code == "guard_failed" {
		return x // what it sets does not fit
	}
	if goes != v.Allowed || x.Code != v.Code.String() {
		t.Errorf("%s in %s: %v, and the policy says %v %v", q.Name, x.State, x.Verdict, v.Allowed, v.Code)
	}
	ways := 0
	for _, s := range x.Steps {
		ways += goesBy(t, s)
	}
	if ways > 1 || ways == 1 && !goes {
		t.Errorf("%s in %s: %d alternatives are the one, and it is %v", q.Name, x.State, ways, x.Verdict)
	}
	return x
}

// goesBy counts the alternatives by which a call goes.
func goesBy(t *testing.T, s Step) (n int) {
	if s.What == "alternative" && s.Is == looks[policy.Holds][0] {
		n++
	}
	if s.Rule == "" && (s.What == "when" || s.What == "case" && s.Text != "" || s.What == "set" || s.What == "at_most" || s.What == "alternative") {
		t.Errorf("no line is told of %s %s", s.What, s.Text)
	}
	for _, in := range s.Steps {
		n += goesBy(t, in)
	}
	return n
}

// The run has the registers that are given, of every type, and what is not given is as it begins.
func TestRegistersAreGiven(t *testing.T) {
	p, found := policy.Parse("p.yaml", []byte(`version: 1
initial: a
registers: {text: text, number: number, boolean: boolean, counter: counter, set: {set: text}, other: text}
states:
  a:
    tools:
      x: {when: 'registers.text == "t" && registers.number == 1.5 && registers.boolean && registers.counter == 7 && "b" in registers.set && registers.set.size() == 2 && !has(registers.other) && run.state == "b"'}
  b: {tools: {x: {when: 'registers.text == "t" && registers.number == 1.5 && registers.boolean && registers.counter == 7 && "b" in registers.set && registers.set.size() == 2 && !has(registers.other) && run.state == "b"'}}}
`))
	if p == nil {
		t.Fatal(found)
	}
	b, _ := p.StateByName("b")
	for _, s := range []policy.State{0, b} {
		x, err := Explain(p, &Question{State: s, Name: "x", Registers: []byte(`{"text":"t","number":1.5,"boolean":true,"counter":7,"set":["a","b"],"other":null}`)})
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]Verdict{false: Refused, true: Sent}[s == b]; x.Verdict != want {
			t.Errorf("%s", x.Text(plain))
		}
		if s != b && strings.Count(x.Text(plain), "false") != 1 {
			t.Errorf("%s", x.Text(plain))
		}
	}
}

// What a name or an argument holds does not reach the terminal as it is, however it is shown.
func TestNothingDisturbsTheTerminal(t *testing.T) {
	p, found := policy.Parse("p.yaml", []byte("version: 1\ninitial: a\nstates: {a: {tools: {x: {by: k, when: args.k == '1', cases: {\"*\": stay, \"\\u202e\": stay}}, \"\\u202e\": {when: args.k == '1'}}}}\n"))
	if p == nil {
		t.Fatal(found)
	}
	for _, q := range []*Question{
		{Name: "x", Args: []byte(`{"k":"\u001b[2J\u202e"}`)}, {Name: "x", Args: []byte(`{"k":"\u202e"}`)}, {Name: "\u202e", Args: []byte(`{"k":"\u202e\u009b"}`)},
		{Name: "\x1b[2J\u202e"}, {Name: "x", Args: []byte(`{"k":"` + strings.Repeat("a\\n", 1000) + `"}`), Who: &asker.Who{Subject: "\x1b"}},
	} {
		x, err := Explain(p, q)
		if err != nil {
			t.Fatal(err)
		}
		text := x.Text(plain)
		if strings.ContainsAny(text, "\x1b\u202e\u009b") || len(text) > 2000 {
			t.Errorf("%q", text)
		}
	}
}

// A call that is too long to be approved is refused, and the explanation says by what.
func TestLongArgumentsAreNotApproved(t *testing.T) {
	p, found := policy.Parse("p.yaml", []byte("version: 1\ninitial: a\nstates: {a: {tools: {x: {approve: {by: operator}}}}}\n"))
	if p == nil {
		t.Fatal(found)
	}
	x, err := Explain(p, &Question{Name: "x", Args: []byte(`{"k":"` + strings.Repeat("a", 70<<10) + `"}`)})
	if err != nil || x.Code != "approval_denied" || !strings.Contains(x.Text(plain), "    approve: its arguments are longer than 64 KiB") {
		t.Errorf("%v\n%s", err, x.Text(plain))
	}
}
