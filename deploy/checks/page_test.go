package checks

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
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
