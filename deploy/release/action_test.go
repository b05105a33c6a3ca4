package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
	"go.yaml.in/yaml/v3"
)

// action is action.yml, of which the tests run the steps.
type action struct {
	Inputs map[string]struct {
		Required bool   `yaml:"required"`
		Default  string `yaml:"default"`
	} `yaml:"inputs"`
	Runs struct {
		Steps []map[string]any `yaml:"steps"`
	} `yaml:"runs"`
}

func readAction(t *testing.T) action {
	t.Helper()
	var a action
	if err := yaml.Unmarshal(read(t, "../../action.yml"), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// GitHub's schema of workflows holds for the steps of the action, and for docs/install.md's example.
func TestActionLint(t *testing.T) {
	a := readAction(t)
	inputs := map[string]any{}
	for name := range a.Inputs {
		inputs[name] = map[string]any{"type": "string"}
	}
	asWorkflow, err := yaml.Marshal(map[string]any{
		"on":   map[string]any{"workflow_call": map[string]any{"inputs": inputs}},
		"jobs": map[string]any{"check": map[string]any{"runs-on": "ubuntu-latest", "steps": a.Runs.Steps}},
	})
	if err != nil {
		t.Fatal(err)
	}
	lint(t, "action.yml", asWorkflow)
	lint(t, "docs/install.md", []byte(pageExample(t, ".github/workflows/policies.yaml")))
}

func lint(t *testing.T, name string, workflow []byte) {
	t.Helper()
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	findings, err := linter.Lint(name, workflow, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Errorf("%v\n%s", f, workflow)
	}
}

// pageExample is a file that docs/install.md shows, by its name in the first line.
func pageExample(t *testing.T, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(string(read(t, "../../docs/install.md")), "```yaml\n# "+name+"\n")
	if !found {
		t.Fatalf("docs/install.md does not show %s", name)
	}
	text, _, _ := strings.Cut(rest, "```")
	return text
}

// Every input that the example gives is one of the action's, and those that must be given are.
func TestActionExample(t *testing.T) {
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Uses string            `yaml:"uses"`
				With map[string]string `yaml:"with"`
			} `yaml:"steps"`
		} `yaml:"jobs"`
	}
	if err := yaml.Unmarshal([]byte(pageExample(t, ".github/workflows/policies.yaml")), &workflow); err != nil {
		t.Fatal(err)
	}
	a, used := readAction(t), false
	for _, job := range workflow.Jobs {
		for _, step := range job.Steps {
			if !strings.HasPrefix(step.Uses, "fsm-proxy/fsm-proxy@") {
				continue
			}
			used = true
			for name := range step.With {
				if _, ok := a.Inputs[name]; !ok {
					t.Errorf("the action has no input %s", name)
				}
			}
			for name, input := range a.Inputs {
				if _, given := step.With[name]; input.Required && !given {
					t.Errorf("the example does not give %s", name)
				}
			}
		}
	}
	if !used {
		t.Error("the example does not use the action")
	}
}

// job is one run of the action in a repository.
type job struct {
	dir, temp string
	inputs    map[string]string
}

// newJob is a job in a repository of its own, with the release behind a server.
func newJob(t *testing.T, releases string, inputs map[string]string) *job {
	t.Helper()
	j := &job{dir: t.TempDir(), temp: t.TempDir(), inputs: map[string]string{"releases": releases}}
	maps.Copy(j.inputs, inputs)
	j.git(t, "init", "--quiet", "--initial-branch=main")
	return j
}

func (j *job) git(t *testing.T, args ...string) string {
	t.Helper()
	return strings.TrimSpace(run(t, j.dir, gitEnvironment, "git", args...))
}

// gitEnvironment is a git without the user's settings.
var gitEnvironment = []string{
	"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com",
	"GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com",
}

func (j *job) commit(t *testing.T, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		write(t, filepath.Join(j.dir, name), text)
	}
	j.git(t, "add", "--all")
	j.git(t, "commit", "--quiet", "--message=x")
	return j.git(t, "rev-parse", "HEAD")
}

var expression = regexp.MustCompile(`^\$\{\{ inputs\.([a-z-]+) \}\}$`)

// do runs the shell steps as a runner does, up to one that fails.
func (j *job) do(t *testing.T) (string, error) {
	t.Helper()
	a := readAction(t)
	path := write(t, filepath.Join(j.temp, "path"), "")
	var said strings.Builder
	for _, step := range a.Runs.Steps {
		script, ok := step["run"].(string)
		if !ok {
			continue // another action
		}
		arch := map[string]string{"amd64": "X64", "arm64": "ARM64"}[runtime.GOARCH]
		system := map[string]string{"linux": "Linux", "darwin": "macOS"}[runtime.GOOS]
		added := strings.ReplaceAll(strings.TrimSpace(string(read(t, path))), "\n", ":")
		env := append(slices.Clone(gitEnvironment), "RUNNER_TEMP="+j.temp, "RUNNER_OS="+system, "RUNNER_ARCH="+arch, "GITHUB_PATH="+path,
			"GITHUB_WORKSPACE="+j.dir, "GITHUB_ACTIONS=true", "PATH="+added+":"+os.Getenv("PATH"))
		for name, value := range step["env"].(map[string]any) {
			m := expression.FindStringSubmatch(value.(string))
			if m == nil {
				t.Fatalf("the test cannot evaluate %v", value)
			}
			given, ok := j.inputs[m[1]]
			if !ok {
				given = a.Inputs[m[1]].Default
			}
			env = append(env, name+"="+given)
		}
		file := write(t, filepath.Join(j.temp, "step.sh"), script)
		out, err := try(t, j.dir, env, "bash", "--noprofile", "--norc", "-eo", "pipefail", file)
		said.WriteString(out)
		if err != nil {
			return said.String(), err
		}
	}
	return said.String(), nil
}

// serveReleases serves the release as GitHub does; change gives a file other bytes.
func serveReleases(t *testing.T, change func(name string, data []byte) []byte) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("GET /releases/latest", http.RedirectHandler("/releases/tag/"+tag, http.StatusFound))
	mux.HandleFunc("GET /releases/tag/"+tag, func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /releases/download/"+tag+"/{name}", func(w http.ResponseWriter, q *http.Request) {
		data, err := os.ReadFile(filepath.Join(dist, q.PathValue("name")))
		if err != nil {
			http.NotFound(w, q)
			return
		}
		_, _ = w.Write(change(q.PathValue("name"), data))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/releases"
}

func asIs(_ string, data []byte) []byte { return data }

const (
	goodPolicy    = "version: 1\ninitial: a\nstates:\n  a:\n    tools:\n      go: {on_success: b, on_error: stay, on_unknown: stay}\n  b:\n    tools:\n      back: {on_success: a, on_error: stay, on_unknown: stay}\n"
	warnedPolicy  = "version: 1\ninitial: a\nstates:\n  a:\n    tools:\n      go: {on_success: b, on_error: stay}\n  b:\n    tools: [back]\n"
	brokenPolicy  = "version: 1\ninitial: nowhere\nstates:\n  a:\n    tools: [go]\n"
	renamedPolicy = "version: 1\ninitial: a\nstates:\n  a:\n    tools:\n      go: {on_success: c, on_error: stay, on_unknown: stay}\n  c:\n    tools:\n      back: {on_success: a, on_error: stay, on_unknown: stay}\n"
)

// The action installs the release, the one that it is told or the latest, and fails just where a policy is wrong.
func TestAction(t *testing.T) {
	t.Parallel()
	releases := serveReleases(t, asIs)
	for name, c := range map[string]struct {
		inputs map[string]string
		before map[string]string // what the commit has that the job is compared with
		files  map[string]string
		fails  bool
		says   string
	}{
		"good": {
			inputs: map[string]string{"policies": "policies\n", "version": tag},
			files:  map[string]string{"policies/a.yaml": goodPolicy}, says: "OK",
		},
		"a warning is an error": {
			inputs: map[string]string{"policies": "./policies/"},
			files:  map[string]string{"policies/a.yaml": warnedPolicy}, fails: true, says: "::error file=policies/a.yaml,line=6,",
		},
		"a warning is a warning": {
			inputs: map[string]string{"policies": "policies/a.yaml", "strict": "false"},
			files:  map[string]string{"policies/a.yaml": warnedPolicy}, says: "::warning file=policies/a.yaml,line=6,",
		},
		"all are checked": {
			inputs: map[string]string{"policies": "policies/with space.yaml\r\npolicies/b.yaml\n"},
			files:  map[string]string{"policies/with space.yaml": brokenPolicy, "policies/b.yaml": warnedPolicy}, fails: true, says: "::error file=policies/b.yaml,",
		},
		"a state is stranded": {
			inputs: map[string]string{"policies": "policies", "against": "base"},
			before: map[string]string{"policies/a.yaml": goodPolicy},
			files:  map[string]string{"policies/a.yaml": renamedPolicy}, fails: true, says: "title=stranded",
		},
		"a state is renamed": {
			inputs: map[string]string{"policies": "policies/a.yaml", "against": "base"},
			before: map[string]string{"policies/a.yaml": goodPolicy},
			files:  map[string]string{"policies/a.yaml": renamedPolicy + "renamed: {b: c}\n"}, says: "OK",
		},
		"a policy is new": {
			inputs: map[string]string{"policies": "policies/a.yaml", "against": "base"},
			before: map[string]string{"README.md": "x"},
			files:  map[string]string{"policies/a.yaml": goodPolicy}, says: "OK",
		},
		"a policy was broken": {
			inputs: map[string]string{"policies": "policies", "against": "base"},
			before: map[string]string{"policies/a.yaml": brokenPolicy},
			files:  map[string]string{"policies/a.yaml": goodPolicy}, says: "OK",
		},
		"nothing to compare with": {
			inputs: map[string]string{"policies": "policies", "against": "nowhere"},
			files:  map[string]string{"policies/a.yaml": goodPolicy}, fails: true, says: "::error::against: there is no commit, branch or tag nowhere at origin",
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, releases, c.inputs)
			if c.before != nil {
				j.commit(t, c.before)
				j.git(t, "tag", "base")
			}
			j.commit(t, c.files)
			out, err := j.do(t)
			if (err != nil) != c.fails || !strings.Contains(out, c.says) {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
}

// The commit to compare with is fetched where the checkout does not have it, as actions/checkout leaves it.
func TestActionFetchesTheOtherCommit(t *testing.T) {
	t.Parallel()
	origin := newJob(t, "", nil)
	base := origin.commit(t, map[string]string{"policies/a.yaml": goodPolicy})
	origin.commit(t, map[string]string{"policies/a.yaml": renamedPolicy})
	for name, against := range map[string]string{"commit": base, "branch": "old"} {
		t.Run(name, func(t *testing.T) {
			origin.git(t, "branch", "--force", "old", base)
			j := &job{dir: filepath.Join(t.TempDir(), "clone"), temp: t.TempDir(), inputs: map[string]string{
				"releases": serveReleases(t, asIs), "policies": "policies", "against": against,
			}}
			run(t, origin.dir, gitEnvironment, "git", "clone", "--quiet", "--depth=1", "--branch=main", "file://"+origin.dir, j.dir)
			if out, err := j.do(t); err == nil || !strings.Contains(out, "title=stranded") {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
}

// The findings are in a SARIF file for code scanning, also where the check fails.
func TestActionSARIF(t *testing.T) {
	t.Parallel()
	j := newJob(t, serveReleases(t, asIs), map[string]string{"policies": "policies", "sarif": "true"})
	j.commit(t, map[string]string{"policies/a.yaml": brokenPolicy})
	if out, err := j.do(t); err == nil {
		t.Errorf("it is well:\n%s", out)
	}
	var sarif struct {
		Version string `json:"version"`
		Runs    []struct {
			Results []any `json:"results"`
		} `json:"runs"`
	}
	if err := json.Unmarshal(read(t, filepath.Join(j.temp, "fsm-proxy.sarif")), &sarif); err != nil {
		t.Fatal(err)
	}
	if sarif.Version != "2.1.0" || len(sarif.Runs) != 1 || len(sarif.Runs[0].Results) == 0 {
		t.Errorf("%+v", sarif)
	}
}

// An archive that is not the one of the sums is not run, and what is not there is said.
func TestActionVerifies(t *testing.T) {
	t.Parallel()
	forged := func(name string, data []byte) []byte {
		if strings.HasSuffix(name, ".tar.gz") {
			return append(bytes.Clone(data), 0)
		}
		return data
	}
	unlisted := func(name string, data []byte) []byte {
		if name == "SHA256SUMS" {
			return nil
		}
		return data
	}
	for name, c := range map[string]struct {
		change  func(string, []byte) []byte
		version string
		says    string
	}{
		"forged":     {forged, tag, "is not the file that SHA256SUMS has the sum of"},
		"unlisted":   {unlisted, tag, "SHA256SUMS of v9.8.7 has no fsm-proxy_v9.8.7_"},
		"no release": {asIs, "v0.0.1", "has no SHA256SUMS of v0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, serveReleases(t, c.change), map[string]string{"policies": "policies", "version": c.version})
			j.commit(t, map[string]string{"policies/a.yaml": goodPolicy})
			out, err := j.do(t)
			if err == nil || !strings.Contains(out, "::error::") || !strings.Contains(out, c.says) {
				t.Errorf("%v:\n%s", err, out)
			}
			if path := read(t, filepath.Join(j.temp, "path")); len(path) > 0 {
				t.Errorf("it is put into PATH: %s", path)
			}
		})
	}
}
