package checks

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// withPolicy are values with a policy of so many lines.
func withPolicy(key, text string) string {
	indented := "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
	if key == "text" {
		return "server: {image: a}\npolicy:\n  text: |\n" + indented + "\n"
	}
	return "server: {image: a}\npolicy:\n  content:\n" + indented + "\n"
}

// A policy that would not load is an error of helm template, whichever way it is given, and the error says where.
func TestHelmRefusesPoliciesThatDoNotLoad(t *testing.T) {
	for _, c := range []struct{ name, policy, content, text string }{
		{"a key that there is none of", "version: 1\ninitial: a\nstates: {a: {tool: [b]}}", "policy/content/states/a", ""},
		{"another version", "version: 2\ninitial: a\nstates: {a: {tools: [b]}}", "policy/content/version", ""},
		{"no states", "version: 1\ninitial: a", "states", "policy: no states"},
		{"an edge of another type", "version: 1\ninitial: a\nstates: {a: {tools: {b: [c]}}}", "policy/content/states/a/tools", "no state"},
		{"no such beginning", "version: 1\ninitial: z\nstates: {a: {tools: [b]}}", `policy: initial: there is no state "z"`, "same"},
		{"no such state", "version: 1\ninitial: a\nstates: {a: {tools: {b: c}}}", `policy: states.a.tools.b: there is no state "c"`, "same"},
		{"the page's", "version: 1\ninitial: planning\nstates: {planning: {tools: {write_plan: reviewing}}}", onThePage(t), "same"},
		{"no such state in an edge", "version: 1\ninitial: a\nstates: {a: {prompts: {b: {on_error: c}}}}", `policy: states.a.prompts.b.on_error: there is no state "c"`, "same"},
		{"no such state behind to", "version: 1\ninitial: a\nstates: {a: {tools: {b: {on_any: {to: c}}}}}", `b.on_any: there is no state "c"`, "same"},
		{"no such state in a case", "version: 1\ninitial: a\nstates: {a: {tools: {b: {by: x, cases: {y1: c}}}}}", `b.cases.y1: there is no state "c"`, "same"},
		{"no such state everywhere", "version: 1\ninitial: a\neverywhere: {tools: {b: c}}\nstates: {a: }", `policy: everywhere.tools.b: there is no state "c"`, "same"},
		{"a name that Helm misreads", "version: 1\ninitial: a\nstates: {a: {tools: {b: {by: x, cases: {on: stay}}}}}", "Helm reads an unquoted yes", ""},
		{"no YAML", "version: 1\ninitial: *a\nstates: {a: }", "", "policy: "},
	} {
		for key, says := range map[string]string{"content": c.content, "text": c.text} {
			if says == "same" {
				says = c.content
			}
			if says == "" {
				continue
			}
			if _, err := helm(t, withPolicy(key, c.policy)); err == nil {
				t.Errorf("%s, as %s: no error", c.name, key)
			} else if !strings.Contains(err.Error(), says) {
				t.Errorf("%s, as %s: the error does not say %q: %v", c.name, key, says, err)
			}
		}
	}
}

// onThePage is the error that docs/kubernetes.md shows.
func onThePage(t *testing.T) string {
	t.Helper()
	for _, m := range fence.FindAllStringSubmatch(string(readFile(t, "..", "docs", "kubernetes.md")), -1) {
		if m[1] == "text" && strings.HasPrefix(m[2], "policy: ") {
			return strings.TrimSpace(m[2])
		}
	}
	t.Fatal("the page shows no policy that Helm refuses")
	return ""
}

// Each ready policy is taken, and as content it says what its file says.
func TestHelmTakesTheReadyPolicies(t *testing.T) {
	fsmProxy := program(t)
	files, err := filepath.Glob(filepath.Join(root(t), "policies", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("looking for policies: %v", err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".test.yaml") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"content", "text"} {
			rendered, err := helm(t, withPolicy(key, string(source)))
			if err != nil {
				t.Errorf("%s as %s: %v", file, key, err)
				continue
			}
			for _, m := range every[*core.ConfigMap](objects(t, rendered)) {
				if text, ok := m.Data["policy.yaml"]; ok {
					sameDrawing(t, fsmProxy, file, text)
				}
			}
		}
	}
}

var (
	document = regexp.MustCompile(`(?m)^-- (\S+) --\n`)
	// nullIsAKey have a state, or a case, whose name is null. Helm's YAML has no such key.
	nullIsAKey = []string{"texts-not-types.yaml", "cases-warnings.yaml"}
)

// Whatever policy loads, the chart takes it as text: what it looks at itself it does not judge more strictly.
func TestHelmTakesWhatLoads(t *testing.T) {
	corpus := string(readFile(t, "..", "policy", "report", "testdata", "findings.txtar"))
	names, texts := document.FindAllStringSubmatch(corpus, -1), document.Split(corpus, -1)[1:]
	taken := 0
	for i := 0; i+1 < len(names); i += 2 { // a policy, and what is found in it
		if strings.Contains(texts[i+1], ": error: ") || slices.Contains(nullIsAKey, names[i][1]) {
			continue
		}
		if _, err := helm(t, withPolicy("text", texts[i])); err != nil {
			t.Errorf("%s: %v", names[i][1], err)
		}
		taken++
	}
	if taken < 10 {
		t.Errorf("%d policies were tried", taken)
	}
}

// sameDrawing fails the test unless a policy is drawn as its file is.
func sameDrawing(t *testing.T, fsmProxy, file, text string) {
	t.Helper()
	other := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, nil, fsmProxy, "check", other)
	want, got := drawing(t, fsmProxy, file), drawing(t, fsmProxy, other)
	if want != got {
		t.Errorf("%s was\n%s\nand is\n%s", file, want, got)
	}
}

func drawing(t *testing.T, fsmProxy, file string) string {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal([]byte(run(t, nil, fsmProxy, "render", "--format", "json", file)), &tree); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(placeless(tree))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// placeless is a drawing without what depends on where things stand in the file: positions, and the order of names.
func placeless(tree any) any {
	switch tree := tree.(type) {
	case map[string]any:
		for _, key := range []string{"file", "digest", "line", "column"} {
			delete(tree, key)
		}
		for key, value := range tree {
			tree[key] = placeless(value)
		}
	case []any:
		for i, value := range tree {
			tree[i] = placeless(value)
		}
		slices.SortFunc(tree, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return tree
}

// The parts of a policy are files beside it, which is the one called policy.yaml; together they load.
func TestHelmTakesParts(t *testing.T) {
	fsmProxy := program(t)
	policy := "version: 1\ninitial: a\non_complete: stop\nuse: {work: work.yaml, more: more.yaml}\nstates: {a: {part: work, exits: b}, b: {part: more, exits: {end: {terminal: true}}}}"
	parts := "  parts:\n    work.yaml: {version: 1, initial: w, states: {w: {tools: {go: {on_any: end}}}, end: {terminal: true}}}\n" +
		"    more.yaml: |\n      version: 1\n      initial: m\n      states: {m: {tools: {go: {on_any: end}}}, end: {terminal: true}}\n"
	for _, key := range []string{"content", "text"} {
		rendered, err := helm(t, withPolicy(key, policy)+parts)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for _, m := range every[*core.ConfigMap](objects(t, rendered)) {
			if _, ok := m.Data["policy.yaml"]; !ok {
				continue
			}
			for name, text := range m.Data {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		if out := run(t, nil, fsmProxy, "check", "--strict", dir); !strings.Contains(out, "policy.yaml: ok, 2 states") {
			t.Errorf("%s: %s", key, out)
		}
	}
	for bad, says := range map[string]string{
		"  parts: {policy.yaml: {version: 1}}\n":                                 "policy.yaml",
		"  parts: {a/b.yaml: {version: 1}}\n":                                    "a/b.yaml",
		"  parts: {b.yaml: {version: 1, initial: s, states: {s: {tool: []}}}}\n": "policy/parts/b.yaml/states/s",
	} {
		if _, err := helm(t, withPolicy("content", policy)+bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := helm(t, "server: {image: a}\npolicy:\n  configMap: mine\n"+parts); err == nil || !strings.Contains(err.Error(), "put the parts into that ConfigMap") {
		t.Errorf("parts beside a ConfigMap: %v", err)
	}
}
