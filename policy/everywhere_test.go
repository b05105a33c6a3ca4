package policy

import (
	"strings"
	"testing"
)

const everywhereSource = `version: 1
initial: a
everywhere:
  tools: {status: , moves: b, excl: {exclusive: true}, "list_*": , split: {by: a, cases: {x: stay, y: b}}, unbound: , home: b}
states:
  a: {tools: {own: , both: }}
  b: {tools: {both: , unbound: none, "list_secret": none, finish: done}}
  done: {terminal: true}
`

func TestEverywhereIsWhatEveryStateAllowsAndStays(t *testing.T) {
	p, findings := Parse("p.yaml", []byte(everywhereSource))
	if p == nil {
		t.Fatal(findings)
	}
	for _, x := range []struct {
		name, argument string
		listed, want   bool
	}{
		{"status", "", true, true}, {"status", "", false, true}, {"both", "", false, true},
		{"list_a", "", true, true}, {"list_a", "", false, false}, {"list_secret", "", true, false},
		{"moves", "", true, false}, {"home", "", true, false}, {"excl", "", true, false}, {"own", "", true, false},
		{"unbound", "", true, false}, {"nothing", "", true, false},
		{"split", "x", true, true}, {"split", "y", true, false}, {"split", "z", true, false}, {"split", "", true, false},
	} {
		v := p.Everywhere(&Request{Kind: Tool, Name: x.name, Listed: x.listed, Args: Lookup(func([]string) Argument {
			if x.argument == "" {
				return Argument{}
			}
			return Text(x.argument)
		})})
		if v.Allowed != x.want || v.Turn || (v.Code == CodeNone) != x.want || !x.want && v.Code != RunNotFound {
			t.Errorf("%+v: %+v", x, v)
		}
		if x.want && (v.Symbol.Name != x.name || v.Rule.Line == 0 || v.ByGlob != strings.HasPrefix(x.name, "list_")) {
			t.Errorf("%+v: %+v", x, v)
		}
	}
	if v := p.Everywhere(&Request{Kind: Kind(9), Name: "status", Listed: true}); v.Allowed {
		t.Error("a kind that is none")
	}
}
