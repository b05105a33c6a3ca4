package checks

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	core "k8s.io/api/core/v1"
)

// program builds fsm-proxy as the image has it.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fsm-proxy")
	run(t, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-o", path, "./cmd/fsm-proxy")
	return path
}

// The configurations and policies in the ConfigMaps are ones that fsm-proxy takes.
func TestProgramTakesTheConfigMaps(t *testing.T) {
	fsmProxy := program(t)
	text := "version: 1\nname: one\ninitial: a\nstates: {a: {tools: [b]}}\n"
	rendered, err := helm(t, "server: {image: example.com/server:1}\npolicy: {text: "+strconv.Quote(text)+"}\n")
	if err != nil {
		t.Fatal(err)
	}
	all := append(objects(t, rendered), objects(t, kustomize(t, "kustomize", "example"))...)
	checked := 0
	for _, m := range every[*core.ConfigMap](all) {
		for name, content := range m.Data {
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if name == "fsm-proxy.yaml" {
				run(t, nil, fsmProxy, "check", "--config", path)
			} else {
				run(t, nil, fsmProxy, "check", path)
			}
			checked++
		}
	}
	if checked != 4 {
		t.Errorf("%d files were checked, of 4", checked)
	}
}
