package policies_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/policies"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

func TestMain(m *testing.M) { mcptest.Main(m, nil) }

// names are the policies, without ".yaml".
func names(t *testing.T) []string {
	t.Helper()
	files, err := fs.Glob(policies.Files, "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no policies: %v", err)
	}
	files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, ".test.yaml") })
	for i, file := range files {
		files[i] = strings.TrimSuffix(file, ".yaml")
	}
	return files
}

func source(t *testing.T, name string) []byte {
	t.Helper()
	src, err := policies.Files.ReadFile(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func TestEveryPolicyIsStrictlyFreeOfFindings(t *testing.T) {
	for _, name := range names(t) {
		p, findings := report.Parse(name+".yaml", source(t, name))
		if err := findings.Strict().Err(); err != nil {
			t.Error(err)
			continue
		}
		for _, f := range findings {
			if f.Code == "no-on-unknown" {
				t.Error(f)
			}
		}
		if p.Name() != name {
			t.Errorf("%s.yaml is named %q", name, p.Name())
		}
	}
}

// The header is what a reader sees first: what the policy is for, and where it
// ends.
func TestEveryPolicySaysWhatItProtectsAndWhatItCannot(t *testing.T) {
	for _, name := range names(t) {
		header, _, _ := strings.Cut(string(source(t, name)), "\nversion:")
		for _, word := range []string{"rotect", "annot", "$schema="} {
			if !strings.Contains(header, word) {
				t.Errorf("the header of %s.yaml has no %q", name, word)
			}
		}
	}
}

func TestEveryPolicyHasATranscript(t *testing.T) {
	for _, name := range names(t) {
		if _, ok := servers[name]; !ok {
			t.Errorf("%s.yaml is played against no server", name)
		}
	}
}

// The real servers list every name that a policy binds, and the check counts
// warnings as errors.
func TestPoliciesAgainstRealLists(t *testing.T) {
	for name, server := range map[string][]string{
		"filesystem": mcptest.Filesystem(t, t.TempDir()),
		"memory":     mcptest.Memory(t),
		"everything": mcptest.Everything(t),
		"playwright": mcptest.Playwright(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := exec.Command(mcptest.Proxy(t), append([]string{"check", "--strict", name + ".yaml", "--"}, server...)...)
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("check --strict: %v\n%s", err, out)
			}
		})
	}
}

// These need an account, or a cluster: their names are held against those that
// the servers publish.
func TestPoliciesAgainstPublishedNames(t *testing.T) {
	for _, name := range []string{"github", "terraform", "kubernetes", "database", "support-refund"} {
		p, _ := policy.Parse(name+".yaml", source(t, name))
		if err := report.Against(p, published(t, name), nil).Strict().Err(); err != nil {
			t.Error(err)
		}
	}
}

// published are the tools of testdata/NAME.tools.
func published(t *testing.T, name string) []report.Offer {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".tools"))
	if err != nil {
		t.Fatal(err)
	}
	var offers []report.Offer
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		tool, hint, _ := strings.Cut(strings.TrimSpace(line), " ")
		offers = append(offers, report.Offer{Name: tool, ReadOnly: hint == "read-only"})
	}
	return offers
}

// What is never to be had is bound in no state, whatever globs there are.
func TestWhatIsBoundNowhere(t *testing.T) {
	for name, tools := range map[string][]string{
		"playwright":     {"browser_evaluate", "browser_run_code_unsafe"},
		"everything":     {"get-env", "gzip-file-as-resource"},
		"github":         {"create_repository", "fork_repository"},
		"terraform":      {"delete_workspace_safely", "force_unlock_workspace"},
		"kubernetes":     {"kubectl_delete", "kubectl_generic", "exec_in_pod"},
		"database":       {"drop_database"},
		"support-refund": {"delete_order"},
	} {
		p, _ := policy.Parse(name+".yaml", source(t, name))
		for _, tool := range tools {
			if states := p.BoundIn(policy.Tool, tool, true); states != nil {
				t.Errorf("%s.yaml binds %s in %d states", name, tool, len(states))
			}
		}
	}
}
