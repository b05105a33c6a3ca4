//go:build long

package matrix

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// revisions are the requirements that the official suite is run for: the newest of each era.
var revisions = []string{"2025-11-25", mcptest.ModernRevision}

// Every scenario of the official suite, and every check in it, that passes directly passes through the proxy, which
// serves both eras at the same time. No failure is expected, so no file names one. A server over HTTP with sessions
// is asked for the legacy era alone, since go-sdk's has no other then.
func TestConformance(t *testing.T) {
	for _, u := range []struct {
		name      string
		direct    func(t *testing.T) map[string]map[string]scenario
		through   func(t *testing.T) target
		revisions []string
	}{
		{"http with sessions", directWithSessions, conformanceHTTP, revisions[:1]},
		{"http without sessions", directWithoutSessions, conformanceStateless, revisions},
		{"stdio", directWithoutSessions, conformance, revisions}, // the suite itself speaks HTTP alone
	} {
		t.Run(u.name, func(t *testing.T) {
			direct := u.direct(t)
			proxied := suites(t, before(t, u.through(t), inBothEras...).url)
			for _, revision := range u.revisions {
				if len(direct[revision]) < 30 {
					t.Fatalf("the suite of %s ran only %d scenarios directly", revision, len(direct[revision]))
				}
				asGood(t, revision, direct[revision], proxied[revision])
			}
		})
	}
}

// A server with sessions serves clients of the modern era as well as one of their own, but for what the suite knows of
// that server's insides.
func TestConformanceOfTheModernEraOnALegacyServer(t *testing.T) {
	direct := maps.Clone(directWithoutSessions(t)[mcptest.ModernRevision])
	direct["server-stateless"] = maps.Clone(direct["server-stateless"])
	proxied := suites(t, before(t, conformanceHTTP(t), inBothEras...).url)[mcptest.ModernRevision]
	for _, all := range []map[string]scenario{direct, proxied} {
		maps.DeleteFunc(all, func(name string, _ scenario) bool { return slices.Contains(insideAModernServer, name) })
		maps.DeleteFunc(all["server-stateless"], func(check string, _ []status) bool { return slices.Contains(insideAModernServer, check) })
	}
	asGood(t, mcptest.ModernRevision, direct, proxied)
}

// insideAModernServer are scenarios that answer questions by the keys that the server's code has for them, and checks
// of a tool that looks at the capabilities of a request and asks for nothing. A server of the legacy era gets a question's
// answer by an id, and knows the capabilities of the session that the proxy has opened: all those that clients may have.
// What it then asks of a client that cannot is declined, and the call is answered as the server sees fit.
var insideAModernServer = []string{
	"input-required-result-basic-elicitation", "input-required-result-multi-round",
	"input-required-result-multiple-input-requests", "input-required-result-ignore-extra-params",
	"sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
}

// With no flags at all every scenario of the legacy era passes that passes directly, before a server of either era.
func TestConformanceByDefault(t *testing.T) {
	for name, u := range map[string]struct {
		direct  func(t *testing.T) map[string]map[string]scenario
		through func(t *testing.T) target
	}{
		"http with sessions":    {directWithSessions, conformanceHTTP},
		"http without sessions": {directWithoutSessions, conformanceStateless},
	} {
		t.Run(name, func(t *testing.T) {
			direct, proxied := u.direct(t)[revisions[0]], suite(t, before(t, u.through(t)).url, revisions[0])
			if len(direct) < 30 {
				t.Fatalf("the suite ran only %d scenarios directly", len(direct))
			}
			asGood(t, revisions[0], direct, proxied)
		})
	}
}

var directly shared[map[string]map[string]scenario]

// directWithSessions is what becomes of the requirements on a server with sessions, of the legacy era alone.
func directWithSessions(t *testing.T) map[string]map[string]scenario {
	return direct(t, "with sessions", func() map[string]map[string]scenario {
		return map[string]map[string]scenario{revisions[0]: suite(t, conformanceHTTP(t).url, revisions[0])}
	})
}

// directWithoutSessions is what becomes of all requirements on a server without sessions.
func directWithoutSessions(t *testing.T) map[string]map[string]scenario {
	return direct(t, "without sessions", func() map[string]map[string]scenario { return suites(t, conformanceStateless(t).url) })
}

func direct(t *testing.T, name string, run func() map[string]map[string]scenario) map[string]map[string]scenario {
	t.Helper()
	outcomes := directly.get(name, run)
	if len(outcomes) == 0 {
		t.Fatal("the suite was not run directly")
	}
	return outcomes
}

// inBothEras are flags with which no client of the modern era is led to a session, nor needs a handle.
var inBothEras = []string{"--protocol", "both", "--run-key", "modern=process"}

// before puts the proxy, with a policy that binds everything, before an upstream.
func before(t *testing.T, u target, flags ...string) target {
	t.Helper()
	policy := mcptest.WritePolicy(t, "version: 1\nname: open\ninitial: open\ntemplates: empty\nstates:\n  open:\n"+
		"    tools: {\"*\": }\n    prompts: {\"*\": }\n    resources: {\"*\": , \"test://template/123/data\": }\n")
	url, _ := mcptest.Listen(t, append(append([]string{"--no-hint", "--policy", policy}, flags...), u.arguments()...)...)
	return target{url: url}
}

// scenario is what became of each check of one scenario.
type scenario map[string][]status

// status is what became of one check: SUCCESS, FAILURE, WARNING for what a server should do, or INFO for what it may.
type status string

// passed reports whether no check failed.
func (s scenario) passed() bool {
	for _, all := range s {
		if slices.Contains(all, "FAILURE") {
			return false
		}
	}
	return true
}

// asGood fails the test for each scenario and check that passes directly alone, or is not even made through the proxy.
func asGood(t *testing.T, revision string, direct, proxied map[string]scenario) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(direct)) {
		if direct[name].passed() && (proxied[name] == nil || !proxied[name].passed()) {
			t.Errorf("%s: %s passes directly, and not through the proxy: %v", revision, name, proxied[name])
		}
		for check, got := range proxied[name] {
			if want := direct[name][check]; lacking(got) > lacking(want) {
				t.Errorf("%s: %s: the check %s is %v directly, and %v through the proxy", revision, name, check, want, got)
			}
		}
		for check, want := range direct[name] {
			if revision == mcptest.ModernRevision && check == "server-sse-streams-functional" {
				continue // it asks whether answers that are event streams work; the proxy's are JSON, which the suite notes
			}
			if got := proxied[name][check]; passes(got) < passes(want) {
				t.Errorf("%s: %s: the check %s passes %d times directly, and %d times through the proxy", revision, name, check, passes(want), passes(got))
			}
		}
	}
}

// lacking is how many of a check's results are not as good as can be.
func lacking(all []status) (n int) {
	for _, s := range all {
		if s != "SUCCESS" && s != "INFO" {
			n++
		}
	}
	return n
}

// passes is how many of a check's results are good. A check that is not made has none.
func passes(all []status) (n int) {
	for _, s := range all {
		if s == "SUCCESS" {
			n++
		}
	}
	return n
}

// suites runs all requirements against an endpoint at the same time, and returns what became of each scenario.
func suites(t *testing.T, url string) map[string]map[string]scenario {
	t.Helper()
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		all     = map[string]map[string]scenario{}
	)
	for _, revision := range revisions {
		running.Go(func() {
			outcomes := suite(t, url, revision)
			mu.Lock()
			defer mu.Unlock()
			all[revision] = outcomes
		})
	}
	running.Wait()
	return all
}

// suite runs the requirements of one revision against an endpoint.
func suite(t *testing.T, url, revision string) map[string]scenario {
	folder := t.TempDir()
	command := exec.CommandContext(t.Context(), mcptest.Node22(t), mcptest.NodePackage(t, "@modelcontextprotocol/conformance"),
		"server", "--url", url, "--requirements", revision, "--output-dir", folder)
	command.Dir = folder
	out, err := command.CombinedOutput()
	outcomes := map[string]scenario{}
	files, _ := filepath.Glob(filepath.Join(folder, "*", "checks.json")) // the pattern is good
	for _, file := range files {
		outcomes[scenarioOf(file)] = readChecks(t, file)
	}
	if len(outcomes) == 0 {
		t.Errorf("the suite: %v\n%s", err, out) // it ends with an error when a check fails, too
	}
	return outcomes
}

var resultFolder = regexp.MustCompile(`^server-(.*)-\d{4}-\d\d-\d\dT`)

func scenarioOf(file string) string {
	folder := filepath.Base(filepath.Dir(file))
	if found := resultFolder.FindStringSubmatch(folder); found != nil {
		return found[1]
	}
	return folder
}

func readChecks(t *testing.T, file string) scenario {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	var checks []struct {
		ID     string `json:"id"`
		Status status `json:"status"`
	}
	if err := json.Unmarshal(text, &checks); err != nil {
		t.Errorf("reading %s: %v", file, err)
	}
	s := scenario{}
	for _, c := range checks {
		s[c.ID] = append(s[c.ID], c.Status)
	}
	return s
}
