package policy

import "testing"

// A binding is irreversible where the file says so: beside by for each case, among alternatives for its own.
func TestIrreversible(t *testing.T) {
	p := parse(t, "p.yaml", []byte(`version: 1
initial: a
everywhere: {tools: {anywhere: {irreversible: true}}}
states:
  a:
    tools:
      plain: stay
      no: {irreversible: false}
      one: {irreversible: true}
      all: {by: c, irreversible: true, cases: {x: stay, y: {irreversible: false}}}
      split: {by: c, cases: {x: {irreversible: true}, y: stay}}
      "glob_*": {irreversible: true}
      glob_not: stay
`))
	for _, c := range []struct {
		name, arg string
		want      bool
	}{
		{"plain", "", false}, {"no", "", false}, {"one", "", true}, {"all", "x", true}, {"all", "y", true}, {"split", "x", true}, {"split", "y", false},
		{"anywhere", "", true}, {"glob_x", "", true}, {"glob_not", "", false},
	} {
		v := p.Decide(p.Initial(), &Request{Kind: Tool, Name: c.name, Listed: true, Args: argument(c.arg)})
		if !v.Allowed || v.Alternative.Irreversible != c.want {
			t.Errorf("%s %s: %v, want %v", c.name, c.arg, v.Alternative, c.want)
		}
		if v.Turn || v.Settles() {
			t.Errorf("%s %s takes the turn, or is settled", c.name, c.arg)
		}
	}
}
