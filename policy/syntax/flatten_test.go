package syntax

import (
	"reflect"
	"testing"
)

// What a copy of a tree shares with it would be changed in both.
func TestResolvedSharesNothing(t *testing.T) {
	const src = `version: 1
initial: a
states:
  a:
    tools:
      x: [{when: args.y == 1, on_any: b}, {on_any: {to: b, terminal: true}}]
      y: {by: z, cases: {k: {on_success: b}, "l*": b}}
      w: {outcomes: {red: result.isError}, on_red: b, on_any: stay}
    signals: {s: b}
  b: {tools: [back]}
`
	f, r := Read("p.yaml", []byte(src))
	if !r.OK() {
		t.Fatal(r.Findings())
	}
	again, _ := Read("p.yaml", []byte(src))
	seen := 0
	changed := resolved(*f, func(x any) {
		switch x := x.(type) {
		case *Target:
			if x.To.Given {
				seen++
			}
			x.To.Value, x.Terminal = "changed", true
		case *Text:
			x.Value = "changed"
		case *Place:
			x.File = "changed"
		}
	})
	if !reflect.DeepEqual(f, again) {
		t.Error("the tree that was copied has changed")
	}
	if seen != 6 {
		t.Errorf("%d targets were seen", seen)
	}
	if got := changed.States[0].Kinds[0][0].Value.Alternatives[1].Edges[onAny].To; got.Value != "changed" || got.File != "changed" {
		t.Errorf("an edge of an alternative: %+v", got)
	}
}
