package explain

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// FuzzQuestion asks whatever a command line can: it is an error, or explained, and no control reaches the terminal.
func FuzzQuestion(f *testing.F) {
	p, found := policy.Parse("p.yaml", []byte(`version: 1
initial: a
registers: {seen: {set: text, max: 3}, n: counter, last: text}
states:
  a:
    tools:
      x: {when: 'args.x in registers.seen && who.claims.team == "red"', set: {n: {add: 1}}}
      by: {by: a.b, cases: {1: stay, "x*": a}, at_most: 2}
      for: [{for: {scope: s, claim: {team: red}}, on_success: a}, {when: now < timestamp("2030-01-01T00:00:00Z")}]
    signals: {go: a, op: {to: a, from: operator}}
`))
	if p == nil {
		f.Fatal(found)
	}
	f.Add("x", `{"x":"a"}`, "a", "", "", `{"seen":["a"],"n":7}`, `{"subject":"ann","claims":{"team":"red"}}`, "2026-01-31T12:00:00Z")
	f.Add("by", `{"a":{"b":1e0,"B":2}}`, "", "tool", "", "", "", "")
	f.Add("for", "", "", "", "", "", `{"scopes":["s"],"Claims":{"team":["red"]}}`, "")
	f.Add("op", "", "a", "signal", "operator", `{"seen":null}`, "null", "0000-01-01T00:00:00Z")
	f.Add("x", `{"x":"\u202e"}`, "\x1b", "", "", `{"last":"\u001b"}`, `{"claims":[]}`, "")
	f.Fuzz(func(t *testing.T, name, args, state, kind, from, registers, who, now string) {
		q, err := (&Asked{State: state, Kind: kind, From: from, Registers: registers, Who: who, Now: now}).Question(p, name, args)
		text := ""
		if err == nil {
			var x *Explanation
			if x, err = Explain(p, q); err == nil {
				text = x.Text(plain)
			}
		}
		if err == nil && text == "" || strings.ContainsAny(text, "\x1b\x00\x7f\u202e\u009b") {
			t.Fatalf("%q, %v", text, err)
		}
	})
}
