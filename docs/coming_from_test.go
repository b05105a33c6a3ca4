package docs_test

import (
	"slices"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

// workflows are the policies of coming-from.md with their parts, and what tests them.
func workflows(t *testing.T) []example {
	t.Helper()
	var out []example
	for _, b := range fences(read(t, "coming-from.md")) {
		switch b.info {
		case "yaml":
			if name, is := partName(b); is {
				out[len(out)-1].parts[name] = b.text
				continue
			}
			out = append(out, example{block: b, parts: map[string]string{}})
		case "test":
			out[len(out)-1].tests = append(out[len(out)-1].tests, b)
		}
	}
	return out
}

// meant are warnings that say what a case means: they hold although it is meant.
var meant = map[string]bool{"glob-case": true, "executed-glob": true, "plain-case": true}

// No policy of coming-from.md has an error, or a warning but those.
func TestComingFromIsClean(t *testing.T) {
	for _, w := range workflows(t) {
		_, findings := report.ParseParts("policy.yaml", []byte(w.text), w.open)
		for _, f := range slices.Concat(findings.Errors(), findings.Warnings()) {
			if !meant[f.Code] {
				t.Errorf("coming-from.md:%d: %s", w.line, f)
			}
		}
	}
}

// Every policy of coming-from.md is walked in a run, and does what the steps behind it say.
func TestComingFrom(t *testing.T) {
	for _, w := range workflows(t) {
		if w.tests == nil {
			t.Errorf("coming-from.md:%d: nothing walks the policy", w.line)
		}
		play(t, "coming-from.md", w, w.tests)
	}
}
