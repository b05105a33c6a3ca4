//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// inFolder writes policies into one folder.
func inFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// A folder may stand where a policy may.
func TestFolders(t *testing.T) {
	t.Parallel()
	two := inFolder(t, map[string]string{"a.yaml": plainPolicy, "b.yml": strings.Replace(plainPolicy, "plain", "other", 1), "a.lock.yaml": "x", ".hidden.yaml": "x", "README": "x"})
	one, none := inFolder(t, map[string]string{"a.yaml": plainPolicy}), t.TempDir()
	bad := inFolder(t, map[string]string{"a.yaml": "version: 1\n", "b.yaml": plainPolicy})
	for _, c := range []struct {
		args []string
		code int
		says []string
	}{
		{[]string{"check", two}, 0, []string{two + "/a.yaml: ok, 1 state\n", two + "/b.yml: ok, 1 state\n"}},
		{[]string{"check", two, one}, 0, []string{two + "/b.yml: ok, 1 state\n", one + "/a.yaml: ok, 1 state\n"}},
		{[]string{"check", none}, 1, []string{"reading policies in " + none, "holds no *.yaml"}},
		{[]string{"check", bad}, 1, []string{bad + "/a.yaml: 2 errors", bad + "/b.yaml: ok"}},
		{[]string{"check", "--lock", "l.yaml", two}, 2, []string{"--lock names the lock of one policy"}},
		{[]string{"check", "--against", two, one}, 0, []string{two + "/a.yaml → " + one + "/a.yaml\n", "open: kept", two + "/b.yml: note: the new folder has no policy of this name", "(policy-removed)"}},
		{[]string{"check", "--against", one, two}, 0, []string{two + "/b.yml: note: the old folder has no policy of this name"}},
		{[]string{"check", "--against", one, filepath.Join(two, "a.yaml")}, 0, []string{one + "/a.yaml → " + two + "/a.yaml\n"}},
		{[]string{"check", "--against", filepath.Join(two, "a.yaml"), one}, 0, []string{"open: kept"}},
		{[]string{"check", "--against", filepath.Join(two, "b.yml"), one}, 1, []string{one + "/b.yml", "no such file"}},
		{[]string{"check", "--against", none, two}, 1, []string{"holds no *.yaml"}},
		{[]string{"check", "--against", two, none}, 1, []string{"holds no *.yaml"}},
		{[]string{"check", "--against", bad, one}, 1, []string{bad + "/a.yaml: 2 errors"}},
		{[]string{"check", "--against", one, bad, "--strict"}, 1, []string{bad + "/a.yaml: 2 errors"}},
		{[]string{"render", one}, 0, []string{"plain: 1 state"}},
		{[]string{"render", two}, 0, []string{"plain: 1 state", "\n\nother: 1 state"}},
		{[]string{"render", two, "--format", "dot"}, 2, []string{"holds 2 policies", "name one of them: " + two + "/a.yaml"}},
		{[]string{"render", none}, 1, []string{"holds no *.yaml"}},
		{[]string{"lock", two, "--lock", "l.yaml", "--", "cat"}, 2, []string{"names the lock of one policy"}},
		{[]string{"run", "--policy", two, "--", "cat"}, 1, []string{"holds several policy files, a.yaml, b.yml"}},
	} {
		r := command(t, nil, c.args...)
		if r.code != c.code {
			t.Errorf("%v: exit code %d, want %d", c.args, r.code, c.code)
		}
		for _, want := range c.says {
			contains(t, r.stdout+r.stderr, want)
		}
	}
}

// Each policy of a folder gets a lock of its own, of the one server.
func TestLockFolder(t *testing.T) {
	t.Parallel()
	d := newDrift(t, lockedPolicy)
	folder := inFolder(t, map[string]string{"a.yaml": lockedPolicy, "b.yaml": strings.Replace(lockedPolicy, "touch: , ", "", 1)})
	lock := func(code int, args ...string) string {
		t.Helper()
		r := command(t, nil, append(append([]string{"lock", folder}, args...), d.server...)...)
		if r.code != code {
			t.Errorf("%v: exit code %d, want %d\n%s%s", args, r.code, code, r.stdout, r.stderr)
		}
		return r.stdout
	}
	want := folder + "/a.lock.yaml: new, 3 tools of raw 1.0.0\n" + folder + "/b.lock.yaml: new, 2 tools of raw 1.0.0\n"
	if got := lock(1, "--check"); got != want {
		t.Errorf("it says\n%s", got)
	}
	if got := lock(0); got != want {
		t.Errorf("it says\n%s", got)
	}
	lock(0, "--check")
	if r := command(t, nil, "check", folder); r.code != 0 {
		t.Errorf("check: exit code %d\n%s", r.code, r.stdout)
	}
	d.offer(evilTools)
	contains(t, lock(1, "--check"), "b.lock.yaml: changed, 2 tools of raw 1.0.0\n  ~ apply: its description changed\n")
}
