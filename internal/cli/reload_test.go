//go:build unix

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

const closedPolicy = "version: 1\nname: closed\ninitial: open\nstates:\n  open:\n    tools:\n      other:\n"

// followed is a session through a proxy that follows its policy quickly.
func followed(t *testing.T, path string) (*mcptest.Session, *mcptest.Process) {
	t.Helper()
	u := mcptest.Stdio(t, "quiet")
	args := mcptest.RunStdio(t, path, u.Command()...)
	args = append([]string{args[0], args[1], "--reload-debounce", "5ms"}, args[2:]...)
	s, p := mcptest.Dial(t, args...)
	s.Initialize()
	return s, p
}

// tools are the names that a session is shown.
func tools(t *testing.T, s *mcptest.Session) string {
	t.Helper()
	var answer struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal(s.Call("tools/list", "").Raw, &answer); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range answer.Result.Tools {
		names = append(names, tool.Name)
	}
	return strings.Join(names, " ")
}

// awaitChanged waits for the notification that the tools have changed.
func awaitChanged(t *testing.T, s *mcptest.Session) {
	t.Helper()
	for !strings.Contains(string(s.Next().Raw), "notifications/tools/list_changed") {
	}
}

// A policy that was saved is in force for the sessions there are, and they are
// told; one with an error is not, and the last good one stays.
func TestReload(t *testing.T) {
	t.Parallel()
	path := write(t, "p.yaml", plainPolicy)
	s, p := followed(t, path)
	if got := tools(t, s); got != "work" {
		t.Fatalf("shown at first: %q", got)
	}
	replace(t, path, closedPolicy)
	awaitChanged(t, s)
	if got := tools(t, s); got != "" {
		t.Errorf("shown after a reload: %q", got)
	}
	contains(t, string(s.Tool("work", "").Raw), "unknown_action")
	replace(t, path, strings.ReplaceAll(plainPolicy, "initial: open", "initial: opne"))
	p.Log().Await(t, "the last good one stays in force")
	p.Log().Await(t, "did you mean")
	if got := tools(t, s); got != "" {
		t.Errorf("shown after a bad policy: %q", got)
	}
	if err := os.WriteFile(path, []byte(plainPolicy), 0o600); err != nil { // in place
		t.Fatal(err)
	}
	awaitChanged(t, s)
	contains(t, string(s.Tool("work", "").Raw), `"result"`)
}

// A ConfigMap's folder: the file's own name never changes, the link beside it does.
func TestReloadThroughAConfigMap(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	swap := func(version, text string) {
		t.Helper()
		for _, err := range []error{
			os.Mkdir(filepath.Join(folder, ".."+version), 0o700),
			os.WriteFile(filepath.Join(folder, ".."+version, "p.yaml"), []byte(text), 0o600),
			os.Symlink(".."+version, filepath.Join(folder, "..data_tmp")),
			os.Rename(filepath.Join(folder, "..data_tmp"), filepath.Join(folder, "..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	swap("1", plainPolicy)
	if err := os.Symlink("..data/p.yaml", filepath.Join(folder, "p.yaml")); err != nil {
		t.Fatal(err)
	}
	s, p := followed(t, folder)
	if got := tools(t, s); got != "work" {
		t.Fatalf("shown at first: %q", got)
	}
	swap("2", closedPolicy)
	awaitChanged(t, s)
	if got := tools(t, s); got != "" {
		t.Errorf("shown after the swap: %q", got)
	}
	p.Log().Await(t, "the policy was reloaded")
}

// SIGHUP reads the policy at once, and says so even when nothing changed.
func TestHangUpReloads(t *testing.T) {
	t.Parallel()
	s, p := followed(t, write(t, "p.yaml", plainPolicy))
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.Log().Await(t, "the policy was reloaded")
	contains(t, string(s.Tool("work", "").Raw), `"result"`)
}

func TestPolicyFolderErrors(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	r := command(t, nil, "run", "--policy", empty, "--", "true")
	if r.code != 1 {
		t.Errorf("exit code %d", r.code)
	}
	oneLine(t, r.stderr, empty)
	for _, name := range []string{"a.yaml", "b.yml"} {
		if err := os.WriteFile(filepath.Join(empty, name), []byte(plainPolicy), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	oneLine(t, command(t, nil, "run", "--policy", empty, "--", "true").stderr, empty, "a.yaml", "b.yml")
}
