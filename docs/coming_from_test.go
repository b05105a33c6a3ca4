package docs_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/steps"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

// workflow is a policy of coming-from.md with its parts, and what tests it.
type workflow struct {
	example
	tests []block
}

func workflows(t *testing.T) []workflow {
	t.Helper()
	var out []workflow
	for _, b := range fences(read(t, "coming-from.md")) {
		switch b.info {
		case "yaml":
			if name, is := partName(b); is {
				out[len(out)-1].parts[name] = b.text
				continue
			}
			out = append(out, workflow{example: example{block: b, parts: map[string]string{}}})
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
		p, findings := policy.CompileParts("policy.yaml", []byte(w.text), w.open)
		if p == nil {
			t.Fatalf("coming-from.md:%d: %v", w.line, findings)
		}
		if w.tests == nil {
			t.Errorf("coming-from.md:%d: nothing walks the policy", w.line)
		}
		for _, b := range w.tests {
			s, err := steps.ParseSteps([]byte(b.text))
			if err != nil {
				t.Fatalf("coming-from.md:%d: %v", b.line, err)
			}
			steps.Play(t, p, steps.File{Tests: []steps.Test{{Name: fmt.Sprint("line ", b.line), Steps: s}}})
		}
	}
}
