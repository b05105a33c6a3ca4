//go:build long

package matrix

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// From an empty folder, with three commands and the edit that the draft describes, each of nine servers of other people
// is behind a policy: one call is refused, one is a step, one reaches the server, over stdio and over HTTP.
func TestWalks(t *testing.T) {
	t.Parallel()
	for _, w := range wrappedServers {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			policy := w.policy(t, w.start(t))
			for _, name := range w.clientsOf() {
				c := eraClients[slices.IndexFunc(eraClients, func(c eraClient) bool { return c.name == name })]
				for downstream, before := range downstreams {
					t.Run(name+"/"+downstream, func(t *testing.T) {
						t.Parallel()
						server := w.start(t) // of its own: two that reset one repository find it locked
						w.compare(t, c.play(t, stepsFile(t, w.steps(server)), before(t, policy, server)))
					})
				}
			}
		})
	}
}

// policy is what init drafts in an empty folder, with the way opened that the draft describes. check finds no fault with
// either.
func (w wrapped) policy(t *testing.T, server target) (path string) {
	t.Helper()
	folder := t.TempDir()
	path = filepath.Join(folder, w.name+".yaml")
	command(t, folder, append([]string{"init", "-o", path}, server.arguments()...)...)
	command(t, folder, append([]string{"check", path}, server.arguments()...)...)
	if w.open == "" {
		path = filepath.Join("testdata", "walks", w.name+".yaml")
	} else {
		w.openDraft(t, path)
	}
	command(t, ".", append([]string{"check", path}, server.arguments()...)...)
	return path
}

func command(t *testing.T, folder string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), mcptest.Proxy(t), args...)
	c.Dir = folder
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("fsm-proxy %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// openDraft does what the end of a draft says: the tool that was chosen leads to the destructive ones, and these are no
// comment any more.
func (w wrapped) openDraft(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tool, _, _ := strings.Cut(w.open, ":")
	upper, lower, ok := strings.Cut(string(text), "\n  # destructive:")
	opened := strings.Replace(upper, tool+": stay", w.open, 1)
	if !ok || opened == upper {
		t.Fatalf("the draft has no way to open by %s:\n%s", tool, text)
	}
	lower = strings.ReplaceAll("\n  # destructive:"+lower, "\n  # ", "\n  ")
	if err := os.WriteFile(path, []byte(opened+lower), 0o600); err != nil {
		t.Fatal(err)
	}
}

// steps are the walk as a scenario.
func (w wrapped) steps(server target) string {
	steps := make([]string, len(w.walk))
	for i, call := range w.walk {
		steps[i] = `{"op":"call","name":"` + call.tool + `","args":` + call.args + `}`
	}
	all := "[" + strings.Join(steps, ",") + "]"
	return strings.NewReplacer("{{dir}}", filepath.ToSlash(server.folder), "{{url}}", server.page).Replace(all)
}

// compare fails the test for each call that was not answered as the walk says.
func (w wrapped) compare(t *testing.T, lines []line) {
	t.Helper()
	calls := slices.DeleteFunc(lines, func(l line) bool { op, _ := l.op(); return op != "call" })
	if len(calls) != len(w.walk) {
		t.Fatalf("%d calls, not %d", len(calls), len(w.walk))
	}
	for i, want := range w.walk {
		said, err := json.Marshal(calls[i])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(said), want.says) || want.says != refused && strings.Contains(string(said), refused) {
			t.Errorf("%s: %q is not in %.800s", want.tool, want.says, said)
		}
	}
}
