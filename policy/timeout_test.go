package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const timeouts = `
version: 1
initial: a
states:
  a:
    tools:
      plain: stay
      short: {timeout: 5s}
      split:
        timeout: 1m
        by: what
        cases: {less: {timeout: 10s}, more: {timeout: 1h}, none of it: stay}
      either:
        - {when: args.x == 1, timeout: 2s}
        - {when: args.x == 2, timeout: 24h, on_success: b}
        - {when: args.x == 3}
    resources: {"file:///x": {timeout: 3s}}
    prompts: {x: {timeout: 4s}}
  b: {tools: {plain: {timeout: 1s}}}
`

func TestTimeouts(t *testing.T) {
	p := parse(t, "timeouts.yaml", []byte(timeouts))
	for _, x := range []struct {
		tool, args string
		want       time.Duration
	}{
		{"plain", `{}`, 0}, {"short", `{}`, 5 * time.Second},
		{"split", `{"what":"less"}`, 10 * time.Second}, {"split", `{"what":"more"}`, time.Minute}, {"split", `{"what":"none of it"}`, time.Minute},
		{"either", `{"x":1}`, 2 * time.Second}, {"either", `{"x":2}`, 24 * time.Hour}, {"either", `{"x":3}`, 0},
	} {
		v := p.decideWith(p.Initial(), x.tool, x.args)
		if !v.Allowed || time.Duration(v.Alternative.Timeout)*time.Second != x.want {
			t.Errorf("%s %s: %+v", x.tool, x.args, v)
		}
	}
	for kind, want := range map[Kind]time.Duration{Resource: 3 * time.Second, Prompt: 4 * time.Second} {
		name := map[Kind]string{Resource: "file:///x", Prompt: "x"}[kind]
		if v := p.Decide(p.Initial(), &Request{Kind: kind, Name: name, Listed: true}); !v.Allowed || time.Duration(v.Alternative.Timeout)*time.Second != want {
			t.Errorf("%s: %+v", kind, v)
		}
	}
}

// What is wrong with a timeout is said where it stands, with what to write.
func TestBadTimeouts(t *testing.T) {
	for value, want := range map[string]string{
		"30":     `test.yaml:6:20: error: timeout: "30" is no duration; write whole hours, minutes and seconds, such as 30s, 10m or 1h30m`,
		"500ms":  `"500ms" is no duration`,
		"-1s":    `"-1s" is no duration`,
		"1.5h":   `"1.5h" is no duration`,
		"0s":     `timeout: 0s is too short; write a duration from 1s to 24h`,
		"24h1s":  `timeout: 24h1s is too long; write a duration from 1s to 24h`,
		"[30s]":  "a duration, such as 30s or 1h30m",
		"{}":     "a duration, such as 30s or 1h30m",
		"null":   "a duration, such as 30s or 1h30m",
		`"1 s"`:  `"1 s" is no duration`,
		"99999h": "too long",
	} {
		source := fmt.Sprintf("version: 1\ninitial: a\nstates:\n  a:\n    tools:\n      x: {timeout: %s}\n", value)
		p, findings := Parse("test.yaml", []byte(source))
		if got := fmt.Sprint(findings); p != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %s", value, got)
		}
	}
	if p, findings := Parse("test.yaml", []byte("version: 1\ninitial: a\nstates:\n  a:\n    signals:\n      x: {to: a, timeout: 1s}\n")); p != nil {
		t.Errorf("a signal has a timeout: %v", findings)
	}
}
