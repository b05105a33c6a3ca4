package strictyaml

import (
	"strings"
	"testing"
)

type nothing struct{}

func findings(src string, secrets bool) string {
	r := NewReader("f.yaml", Language{Name: "a file", Begin: `"version: 1"`, Secrets: secrets})
	if root := r.Tree([]byte(src)); root != nil {
		ReadFields(r, root, "a file", []Field[nothing]{{Name: "headers", Schema: Bool, Read: func(*Reader, Entry, *nothing) {}}}, &nothing{})
	}
	return r.Findings().String()
}

// Whatever slip turns a secret into something else, no message repeats it; where
// values are no secrets, it is what helps.
func TestSecretsAreNotRepeated(t *testing.T) {
	for name, src := range map[string]string{
		"no space after the colon":    "headers:\n  A:hunter2\nx: y\n",
		"no colon at all":             "headers:\n  hunter2\nx: y\n",
		"two on a line":               "headers: a: hunter2\n",
		"an alias":                    "headers: *hunter2\n",
		"a tag":                       "headers: !hunter2\n",
		"a tag with a value":          "headers: !hunter2 x\n",
		"a sign that begins nothing":  "headers: @hunter2\n",
		"a percent":                   "headers:\n%hunter2\n",
		"a flow that does not end":    "headers: {a: hunter2\nb: c\n",
		"a quote that does not end":   "headers: \"hunter2\n",
		"an unknown escape":           "headers: \"hunter2\\q\"\n",
		"an unknown key":              "A:hunter2:\n",
		"an unknown key with =":       "A=hunter2:\n",
		"a key twice":                 "A:hunter2:\nA:hunter2:\n",
		"a merge":                     "<<: hunter2\nversion: 1\n",
		"a scalar in place of a file": "A:hunter2\n",
		"a tag handle":                "headers: !x!hunter2 y\n",
		"a key without space":         "headers:hunter2:\n",
		"a block":                     "headers: |hunter2\n  x\n",
		"a directive":                 "%YAML hunter2\n---\na: b\n",
	} {
		got := findings(src, true)
		if got == "" || strings.Contains(got, "hunter2") {
			t.Errorf("%s: %s", name, got)
		}
		if !strings.HasPrefix(got, "f.yaml:") || strings.HasPrefix(got, "f.yaml: ") {
			t.Errorf("%s: no place: %s", name, got)
		}
	}
	if got := findings("headers: !hunter2\n", false); !strings.Contains(got, "hunter2") {
		t.Errorf("without secrets: %s", got)
	}
}
