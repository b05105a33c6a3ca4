package report_test

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

// A timeout that is given, taken away, shorter or longer is told.
func TestCompareTellsOfTimeouts(t *testing.T) {
	read := func(value string) *policy.Policy {
		p, findings := policy.Parse("test.yaml", []byte("version: 1\ninitial: a\nstates:\n  a:\n    tools:\n      x: "+value+"\n"))
		if p == nil {
			t.Fatal(findings)
		}
		return p
	}
	for _, x := range []struct{ was, now, want string }{
		{"{timeout: 30s}", "{timeout: 1m}", "(timeout 30s)"},
		{"{timeout: 30s}", "{timeout: 1m}", "(timeout 1m)"},
		{"{exclusive: true}", "{exclusive: true, timeout: 1h30m}", "(exclusive) (timeout 1h30m)"},
		{"{timeout: 1h}", "stay", "(timeout 1h)"},
		{"{timeout: 60s}", "{timeout: 1m}", ""},
		{"{timeout: 1h}", "{timeout: 1h, irreversible: true}", "(irreversible) (timeout 1h)"},
	} {
		text := report.CompareText(read(x.was), read(x.now))
		if x.want == "" && strings.Contains(text, "timeout") || !strings.Contains(text, x.want) {
			t.Errorf("%s to %s: want %q\n%s", x.was, x.now, x.want, text)
		}
	}
}
