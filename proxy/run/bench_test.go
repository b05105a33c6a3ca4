package run_test

import (
	"os"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// crossroads is the source of the reference automaton.
func crossroads(tb testing.TB) string {
	tb.Helper()
	source, err := os.ReadFile("../../policies/crossroads.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	return string(source)
}

// parse reads a policy for a test of testing's or of rapid's.
func parse(tb interface{ Fatal(...any) }, source string) *policy.Policy {
	p, findings := policy.Parse("test.yaml", []byte(source))
	if p == nil {
		tb.Fatal(findings)
	}
	return p
}

// BenchmarkCall is a call from being asked for to passing its turn on: round a left door that
// stays shut, and at the button that moves nothing.
func BenchmarkCall(b *testing.B) {
	type ask struct {
		name    string
		outcome policy.Outcome
	}
	for title, asks := range map[string][]ask{
		"Step": {{"choose_left_path", policy.Success}, {"open_door_with_key", policy.Error}, {"go_back", policy.Success}},
		"Stay": {{"press_button", policy.Success}},
	} {
		b.Run(title, func(b *testing.B) {
			now := time.Unix(0, 0)
			r := run.New(run.Config{Policy: parse(b, crossroads(b))}, time.Unix(1000, 0))
			c := &run.Call{Request: run.Request{Kind: policy.Tool, Listed: true, Known: true}}
			answered := func(name string, o policy.Outcome) {
				c.Name = name
				if a, _ := r.Enter(c, 1, now); a != run.Admitted {
					b.Fatalf("%s in %s: %v", name, r.Standing().State(), c.Verdict.Code)
				}
				_, _, _ = r.Settle(c, run.End{Outcome: o}, now)
				r.Pass(c, now)
			}
			answered("open_door", policy.Success)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				answered(asks[i%len(asks)].name, asks[i%len(asks)].outcome)
			}
		})
	}
}
