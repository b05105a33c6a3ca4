package cli

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const testedPolicy = `version: 1
initial: idle
states:
  idle:
    tools:
      edit: {when: args.path != "b", on_success: review, on_unknown: review}
  review: {tools: {back: {on_any: idle}}}
`

const passingTests = `version: 1
policy: p.yaml
tests:
- name: edits are reviewed
  steps:
  - {tool: edit, args: {path: a}, state: review}
- name: b is not edited
  steps:
  - {tool: edit, args: {path: b}, refused: guard_failed}
`

const failingTests = `version: 1
policy: p.yaml
tests:
- name: edits are reviewed
  steps:
  - {tool: edit, args: {path: a}, state: idle}
`

// layTests writes files into a folder of their own.
func layTests(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// Tests pass, fail where what came differs, and cannot be played; the exit code says which.
func TestTestCommand(t *testing.T) {
	folder := layTests(t, map[string]string{
		"p.yaml": testedPolicy, "a.test.yaml": passingTests, "b.test.yaml": failingTests, "c.test.yaml": "version: 1\npolicy: none.yaml\ntests: [{name: a}]\n",
		"d.test.yaml": "version: 1\npolicy: p.yaml\ntests: [{name: a, steps: [{tol: x}]}]\n",
	})
	for _, c := range []struct {
		args []string
		code int
		want []string
		not  string
	}{
		{[]string{"a.test.yaml"}, 0, []string{"ok    a.test.yaml  2 tests\ncoverage: 71.4% of p.yaml, 5 of 7 states, edges, sides of guards and answers\n"}, "on unknown"},
		{[]string{"a.test.yaml", "-v"}, 0, []string{"--- ok: edits are reviewed\n--- ok: b is not edited\nok    a.test.yaml"}, "FAIL"},
		{[]string{"a.test.yaml", "-v", "--run", "^b"}, 0, []string{"b is not edited", "1 test\n"}, "reviewed"},
		{[]string{"a.test.yaml", "--run", "^c"}, 2, []string{`no test's name matches --run "^c"`}, "FAIL"},
		{[]string{"a.test.yaml", "--run", "("}, 2, []string{"--run: "}, "FAIL"},
		{[]string{"b.test.yaml"}, 1, []string{"--- FAIL: edits are reviewed\n    b.test.yaml:6:42: the state is review, want idle\nFAIL  b.test.yaml  1 of 1 test\n"}, "ok "},
		{[]string{"."}, 1, []string{"ok    a.test.yaml", "FAIL  b.test.yaml", "FAIL  c.test.yaml\n", "none.yaml", `"tol" is no key of a step`}, "p.yaml: "},
		{[]string{"no.test.yaml"}, 1, []string{"FAIL  no.test.yaml\n", "no such file"}, "ok "},
		{nil, 2, []string{"no tests to play"}, "ok"},
		{[]string{"a.test.yaml", "--coverage"}, 0, []string{"coverage: 71.4% of p.yaml, 5 of 7 states, edges, sides of guards and answers\n", "p.yaml:6:13: tool edit on unknown\n", "p.yaml:7:26: tool back on any\n"}, "FAIL"},
		{[]string{"a.test.yaml", "--min-coverage", "70"}, 0, []string{"ok", "coverage: 71.4%"}, "on unknown"},
		{[]string{"a.test.yaml", "--min-coverage", "90"}, 1, []string{"coverage: 71.4% of p.yaml", ", less than 90%"}, "FAIL"},
		{[]string{"a.test.yaml", "--min-coverage", "101"}, 2, []string{"from 0 to 100"}, "ok"},
	} {
		r := commandIn(t, folder, nil, append([]string{"test"}, c.args...)...)
		all := r.stdout + r.stderr
		if r.code != c.code || strings.Contains(all, c.not) {
			t.Errorf("%q: exit code %d\n%s", c.args, r.code, all)
		}
		for _, want := range c.want {
			contains(t, all, want)
		}
	}
	if r := commandIn(t, folder, nil, "check", "."); r.code != 0 {
		t.Errorf("tests are taken for policies: %s", r.stdout)
	}
}

// A JUnit report has each test, and says of one that fails where, and why.
func TestTestJUnit(t *testing.T) {
	folder := layTests(t, map[string]string{"p.yaml": testedPolicy, "a.test.yaml": passingTests, "b.test.yaml": failingTests, "c.test.yaml": "version: 2\n"})
	if r := commandIn(t, folder, nil, "test", ".", "--junit", "report.xml"); r.code != 1 {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	text, err := os.ReadFile(filepath.Join(folder, "report.xml"))
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Suites   []struct {
			Cases []struct {
				Name    string  `xml:"name,attr"`
				Line    int     `xml:"line,attr"`
				Failure *string `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if report.Tests != 4 || report.Failures != 1 || report.Errors != 1 || len(report.Suites) != 3 {
		t.Fatalf("%s", text)
	}
	if f := report.Suites[1].Cases[0]; f.Failure == nil || f.Line != 4 || !strings.Contains(*f.Failure, "b.test.yaml:6:42: the state is review, want idle") {
		t.Errorf("%s", text)
	}
	if f := report.Suites[0].Cases[0]; f.Failure != nil || f.Name != "edits are reviewed" {
		t.Errorf("%s", text)
	}
}
