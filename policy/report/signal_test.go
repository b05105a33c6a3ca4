package report

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

const waits = `version: 1
initial: idle
everywhere:
  signals: {give_up: {to: idle, description: Stop here.}}
states:
  idle: {tools: {plan: {on_any: waiting}}}
  waiting: {everywhere: false, signals: {go: {to: idle, from: operator}}}
  held: {everywhere: false, signals: {approved_by_me: idle}}
`

// What signals lead to is reached, and a state that only an operator ends is no dead end.
func TestSignalsAreFound(t *testing.T) {
	p, found := Parse("p.yaml", []byte(waits))
	if p == nil {
		t.Fatal(found)
	}
	for _, want := range []string{
		"p.yaml:7:3: note: in state \"waiting\" only an operator's signals are bound",
		"p.yaml:8:39: warning: \"approved_by_me\" sounds like an approval",
		"p.yaml:8:3: warning: state \"held\" is not reached",
	} {
		if !strings.Contains(found.String(), want) {
			t.Errorf("no %s in\n%v", want, found)
		}
	}
	if strings.Contains(found.String(), "dead-end") || strings.Contains(found.String(), "no-on-unknown") && strings.Contains(found.String(), "give_up") {
		t.Error(found)
	}
	reached := strings.Replace(waits, "from: operator}}", "from: operator}, stop: held}", 1)
	if _, found := Parse("p.yaml", []byte(reached)); strings.Contains(found.String(), "is not reached") {
		t.Error(found)
	}
}

func TestSignalsAreDrawn(t *testing.T) {
	p, _ := Parse("p.yaml", []byte(waits))
	for name, x := range map[string]struct{ drawn, want string }{
		"mermaid": {Mermaid(p), "s1 --> s0 : signal go #91;operator#93;"},
		"dot":     {DOT(p), `s1 -> s0 [label="signal go [operator]"]`},
		"text":    {Text(p), "go [operator]"},
		"json":    {string(JSON(p)), `"from": "operator"`},
		"says":    {string(JSON(p)), `"description": "Stop here."`},
	} {
		if !strings.Contains(x.drawn, x.want) {
			t.Errorf("%s: no %s in\n%s", name, x.want, x.drawn)
		}
	}
}

func TestSignalsAreCompared(t *testing.T) {
	old, _ := Parse("old.yaml", []byte(waits))
	now, _ := Parse("new.yaml", []byte(strings.Replace(waits, "{to: idle, from: operator}", "{to: idle}", 1)))
	if got := CompareText(old, now); !strings.Contains(got, "~ signal  go  from agent, was from operator") {
		t.Error(got)
	}
	now, _ = Parse("new.yaml", []byte(strings.Replace(waits, "signals: {approved_by_me: idle}", "", 1)))
	if got := CompareText(old, now); !strings.Contains(got, "- signal  approved_by_me") {
		t.Error(got)
	}
}

func TestAServersOwnSignalToolIsFound(t *testing.T) {
	p, _ := Parse("p.yaml", []byte(waits))
	offers := []Offer{{Name: "plan"}, {Name: policy.SignalTool}}
	if found := Against(p, offers, nil); !strings.Contains(found.String(), "(own-name)") {
		t.Error(found)
	}
	if found := Against(p, offers[:1], nil); strings.Contains(found.String(), "(own-name)") {
		t.Error(found)
	}
	operators, _ := Parse("p.yaml", []byte(`{version: 1, initial: a, states: {a: {tools: [plan], signals: {go: {from: operator}}}}}`))
	if found := Against(operators, offers, nil); strings.Contains(found.String(), "(own-name)") {
		t.Error(found)
	}
}
