package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// The hooks of docs/install.md's example, as pre-commit itself installs and runs them. Go's caches are those of the test.
func TestPreCommit(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	env := append([]string{"HOME=" + home, "PRE_COMMIT_HOME=" + home,
		"GOMODCACHE=" + strings.TrimSpace(run(t, "", nil, "go", "env", "GOMODCACHE")), "GOCACHE=" + strings.TrimSpace(run(t, "", nil, "go", "env", "GOCACHE")),
	}, gitEnvironment...)
	hooks := hooksRepository(t)
	j := newJob(t, "", nil)
	configuration := strings.NewReplacer(homepage, hooks, "v1.2.3", tag).Replace(pageExample(t, ".pre-commit-config.yaml"))
	j.commit(t, map[string]string{".pre-commit-config.yaml": configuration, "policies/a.yaml": goodPolicy, "policies/b.yaml": brokenPolicy, "other.yaml": "x: y\n"})
	j.git(t, "update-ref", "refs/remotes/origin/main", "HEAD")
	for _, c := range []struct {
		name   string
		files  map[string]string
		fails  bool
		says   []string
		silent string
	}{
		{"good", map[string]string{"policies/a.yaml": goodPolicy + "# more\n", "policies/b.yaml": goodPolicy}, false, []string{"Passed"}, "Failed"},
		{"a warning", map[string]string{"policies/a.yaml": warnedPolicy}, true, []string{"policies/a.yaml:6:"}, ""},
		{"a state is stranded", map[string]string{"policies/a.yaml": renamedPolicy}, true, []string{"Passed", `is stranded`}, ""},
		{"new", map[string]string{"policies/c.yaml": goodPolicy}, false, []string{"Passed"}, "Failed"},
		{"no policy", map[string]string{"other.yaml": "y: z\n", "policies/a.lock.yaml": "x: y\n"}, false, []string{"Skipped"}, "Failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j.git(t, "reset", "--hard", "--quiet")
			for name, text := range c.files {
				write(t, filepath.Join(j.dir, name), text)
			}
			j.git(t, "add", "--all")
			out, err := try(t, j.dir, env, tool(t, "pre-commit"), "run", "--color=never")
			if (err != nil) != c.fails || c.silent != "" && strings.Contains(out, c.silent) {
				t.Errorf("%v:\n%s", err, out)
			}
			for _, text := range c.says {
				if !strings.Contains(out, text) {
					t.Errorf("no %q in:\n%s", text, out)
				}
			}
		})
	}
}

// hooksRepository is a clone of this repository with what is not committed yet, and a tag.
func hooksRepository(t *testing.T) string {
	t.Helper()
	folder, root := t.TempDir(), absolute(t, "../..")
	files := strings.Split(strings.Trim(run(t, root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00"), "\x00")
	for _, name := range files {
		write(t, filepath.Join(folder, name), string(read(t, filepath.Join(root, name))))
	}
	hooks := &job{dir: folder}
	hooks.git(t, "init", "--quiet", "--initial-branch=main")
	hooks.commit(t, nil)
	hooks.git(t, "tag", tag)
	return folder
}
