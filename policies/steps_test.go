package policies_test

import (
	"testing"

	player "github.com/fsm-proxy/fsm-proxy/internal/play"
	"github.com/fsm-proxy/fsm-proxy/policies"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Each policy does what its NAME.test.yaml says, and nothing of it is left that no test has seen.
func TestPoliciesAreTested(t *testing.T) {
	for _, name := range names(t) {
		text, err := policies.Files.ReadFile(name + ".test.yaml")
		if err != nil {
			t.Error(err)
			continue
		}
		f, findings := player.Read(name+".test.yaml", text)
		if f == nil {
			t.Fatal(findings)
		}
		p, findings := policy.Parse(name+".yaml", source(t, name))
		if p == nil {
			t.Fatal(findings)
		}
		covered := player.NewCoverage(p)
		for i := range f.Tests {
			for _, failure := range f.Play(p, &f.Tests[i], covered) {
				t.Errorf("%s.test.yaml:%d:%d: %s: %s", name, failure.Place.Line, failure.Place.Column, f.Tests[i].Name, failure.Text)
			}
		}
		for _, missing := range covered.Missing() {
			t.Errorf("no test has seen %s", missing)
		}
	}
}
