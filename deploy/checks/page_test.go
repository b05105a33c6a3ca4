package checks

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/strvals"
	apps "k8s.io/api/apps/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// The YAML and the Dockerfile of docs/kubernetes.md stand, line for line, in files that are tested.
func TestPageShowsTestedFiles(t *testing.T) {
	var tested []string
	err := filepath.WalkDir(deploy, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && (filepath.Ext(path) == ".yaml" || entry.Name() == "Dockerfile") {
			tested = append(tested, string(readFile(t, strings.TrimPrefix(path, deploy))))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fence.FindAllStringSubmatch(string(readFile(t, "..", "docs", "kubernetes.md")), -1) {
		within := func(file string) bool { return strings.Contains(file, m[2]) }
		if (m[1] == "yaml" || m[1] == "dockerfile") && !slices.ContainsFunc(tested, within) {
			t.Errorf("this is in no file of deploy/:\n%s", m[2])
		}
	}
}

// The page's commands with helm render, from where they are run: the root of the repository.
func TestPageHelmCommandsRender(t *testing.T) {
	tried := 0
	for _, m := range fence.FindAllStringSubmatch(string(readFile(t, "..", "docs", "kubernetes.md")), -1) {
		if m[1] != "sh" || !strings.HasPrefix(m[2], "helm ") {
			continue
		}
		// The shell takes the command apart: helm is a function that prints its arguments.
		words := strings.Split(run(t, nil, "sh", "-c", `helm() { printf '%s\n' "$@"; }; `+m[2]), "\n")
		given := map[string]any{}
		file := func(path []rune) (any, error) { return string(readFile(t, "..", string(path))), nil }
		for i := 3; i+1 < len(words); i += 2 { // behind install, a name and the chart
			var err error
			switch value := words[i+1]; words[i] {
			case "--values":
				err = sigsyaml.Unmarshal(readFile(t, "..", value), &given)
			case "--set":
				err = strvals.ParseInto(value, given)
			case "--set-file":
				err = strvals.ParseIntoFile(value, given, file)
			case "--set-json":
				err = strvals.ParseJSON(value, given)
			default:
				t.Fatalf("nobody knows %s in\n%s", words[i], m[2])
			}
			if err != nil {
				t.Fatalf("%s %s: %v", words[i], words[i+1], err)
			}
		}
		text, err := sigsyaml.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := helm(t, string(text))
		if err != nil {
			t.Fatalf("%s: %v", m[2], err)
		}
		checkPod(t, the[*apps.Deployment](t, objects(t, rendered)).Spec.Template)
		tried++
	}
	if tried != 2 {
		t.Errorf("%d commands were tried", tried)
	}
}

// Folders that the page has applied are there.
func TestPageAppliesFoldersThatRender(t *testing.T) {
	for _, m := range regexp.MustCompile(`kubectl apply -k deploy/(\S+)`).FindAllStringSubmatch(string(readFile(t, "..", "docs", "kubernetes.md")), -1) {
		objects(t, kustomize(t, strings.Split(m[1], "/")...))
	}
}

// The page's words about labels, annotations and times are those of the manifests.
func TestPageNamesWhatTheManifestsHave(t *testing.T) {
	page := string(readFile(t, "..", "docs", "kubernetes.md"))
	manifests := string(readFile(t, "admission", "policy.yaml")) + string(kustomize(t, "kustomize", "example")) +
		string(kustomize(t, "kustomize", "monitoring"))
	for _, name := range regexp.MustCompile(`fsm-proxy\.dev/[a-z-]+`).FindAllString(page, -1) {
		if !strings.Contains(manifests, name) {
			t.Errorf("the page names %s, which no manifest knows", name)
		}
	}
	for _, name := range regexp.MustCompile("(?:fsm_proxy|mcp)_[a-z_]+").FindAllString(page, -1) {
		if _, known := named(name); !known {
			t.Errorf("the page names the metric %s, which is not exported", name)
		}
	}
}
