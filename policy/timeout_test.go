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

// What is wrong with a duration is said where it stands, with what to write, be it a timeout's or a clock's.
func TestBadDurations(t *testing.T) {
	for value, want := range map[string]string{
		"30":        `"30" is no duration; write whole hours, minutes and seconds, such as 30s, 10m or 1h30m (duration)`,
		"500ms":     `"500ms" is no duration`,
		"-1s":       `"-1s" is no duration`,
		"1.5h":      `"1.5h" is no duration`,
		"1m1h":      `"1m1h" is no duration`,
		"0s":        `0s is too short; write a duration from 1s to `,
		"0h0m":      "too short",
		"[30s]":     "",
		"{}":        "",
		"null":      "a duration, such as 30s or 1h30m",
		`"1 s"`:     `"1 s" is no duration`,
		`""`:        "is no duration",
		"8760h1s":   "8760h1s is too long; write a duration from 1s to ",
		"31536001s": "31536001s is too long",
		"99999h":    "too long",
	} {
		for key, source := range map[string]string{
			"timeout": "version: 1\ninitial: a\nstates:\n  a:\n    tools:\n      x: {timeout: %s}\n",
			"after":   "version: 1\ninitial: a\nstates:\n  a:\n    tools: [x]\n    after: {? %s : b}\n  b: {tools: [x]}\n",
		} {
			p, findings := Parse("test.yaml", fmt.Appendf(nil, source, value))
			if got := fmt.Sprint(findings); p != nil || !strings.Contains(got, want) || want != "" && !strings.Contains(got, "error: "+key+": ") {
				t.Errorf("%s %s: %s", key, value, got)
			}
		}
	}
	for source, want := range map[string]string{
		"    tools:\n      x: {timeout: 30}\n":    `test.yaml:6:20: error: timeout: "30" is no duration`,
		"    tools:\n      x: {timeout: 24h1s}\n": `test.yaml:6:20: error: timeout: 24h1s is too long; write a duration from 1s to 24h (duration)`,
		"    after: {30: a}\n":                    `test.yaml:5:13: error: after: "30" is no duration`,
		"    after: {8761h: a}\n":                 `test.yaml:5:13: error: after: 8761h is too long; write a duration from 1s to 8760h (duration)`,
	} {
		if p, findings := Parse("test.yaml", []byte("version: 1\ninitial: a\nstates:\n  a:\n"+source)); p != nil || !strings.Contains(fmt.Sprint(findings), want) {
			t.Errorf("%s: %v", source, findings)
		}
	}
	for _, year := range []string{"8760h", "525600m", "31536000s", "8759h59m60s"} {
		if p, findings := Parse("test.yaml", []byte("version: 1\ninitial: a\nstates:\n  a: {after: {"+year+": b}}\n  b: {tools: [x]}\n")); p == nil {
			t.Errorf("%s: %v", year, findings)
		}
	}
	if p, findings := Parse("test.yaml", []byte("version: 1\ninitial: a\nstates:\n  a:\n    signals:\n      x: {to: a, timeout: 1s}\n")); p != nil {
		t.Errorf("a signal has a timeout: %v", findings)
	}
}
