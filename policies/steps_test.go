package policies_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/steps"
	"github.com/fsm-proxy/fsm-proxy/policies"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Each policy that has a NAME.test.yaml does what that says.
func TestSteps(t *testing.T) {
	files, err := fs.Glob(policies.Files, "*.test.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file, ".test.yaml"), func(t *testing.T) {
			text, err := policies.Files.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			f, err := steps.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			p, findings := policy.Parse(f.Policy, source(t, strings.TrimSuffix(f.Policy, ".yaml")))
			if p == nil {
				t.Fatal(findings)
			}
			steps.Play(t, p, f)
		})
	}
}
