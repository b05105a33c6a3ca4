package run_test

import (
	"os"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// load reads one of the policies that come along.
func load(tb testing.TB, file string) *policy.Policy {
	tb.Helper()
	source, err := os.ReadFile("../../policies/" + file)
	if err != nil {
		tb.Fatal(err)
	}
	return parse(tb, string(source))
}

func parse(tb testing.TB, source string) *policy.Policy {
	tb.Helper()
	p, findings := policy.Parse("test.yaml", []byte(source))
	if p == nil {
		tb.Fatal(findings)
	}
	return p
}

// BenchmarkCall is a call from being asked for to passing its turn on.
func BenchmarkCall(b *testing.B) {
	p, now := load(b, "crossroads.yaml"), time.Unix(0, 0)
	r := run.New(run.Config{Policy: p})
	for _, c := range []struct {
		title   string
		name    string
		outcome policy.Outcome
	}{{"Step", "open_door", policy.Error}, {"Stay", "press_button", policy.Success}} {
		b.Run(c.title, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call := run.Call{Request: run.Request{Kind: policy.Tool, Name: c.name, Listed: true, Known: true}}
				r.Enter(&call, 1, now)
				_, _, _ = r.Settle(&call, c.outcome, now)
				r.Pass(&call, now)
			}
		})
	}
}
