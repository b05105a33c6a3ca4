package report

import (
	"slices"
	"testing"
)

// Each line that hangs on who asks is told once, and no other.
func TestLinesThatAskWho(t *testing.T) {
	p := parse(t, "p.yaml", []byte(`version: 1
initial: a
registers: {by: text}
states:
  a:
    tools:
      plain:
      for: {for: {scope: admin}}
      when: {when: has(args.x) && who.subject == "ann"}
      claims:
        - {when: who.claims.team == "x"}
        - {when: args.x == 1.0}
      set: {set: {by: who.subject}}
      outcome: {outcomes: {mine: result.text == who.subject}, on_mine: b}
      twice: {for: {subject: ann}, when: who.subject == registers.by}
    signals:
      go: {to: b, for: {scope: go}}
      back: {to: b, from: operator, for: {scope: back}}
  b:
    for:
      issuer: tokens
    after: {1m: a}
`))
	got := AskingWho(p)
	want := []string{"p.yaml:8", "p.yaml:9", "p.yaml:11", "p.yaml:13", "p.yaml:14", "p.yaml:15", "p.yaml:17", "p.yaml:20"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}
