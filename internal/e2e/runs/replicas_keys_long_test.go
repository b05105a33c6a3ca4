//go:build long && unix

package runs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// A replica that is given another key than the others have does not start, and says which. Once they have all ended one does, and
// what they have written stays shut under another record key, until it is given theirs.
func TestReplicaWithAnotherKey(t *testing.T) {
	database := databases(t)
	t.Parallel()
	secret := func(letter string) string {
		file := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(file, []byte(strings.Repeat(letter, 40)), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	k, theirs, another := key{"modern", "principal"}, secret("k"), secret("j")
	_, upstream := mcptest.HTTP(t, server())
	r := replicate(t, k, steps, database(t), "--upstream", upstream, "--record-key", theirs)
	if x := r.enter(k, "").call("once", ""); x.verdict != "success" {
		t.Fatal(x.raw)
	}
	with := func(flag, value string) (args []string) {
		args = slices.Clone(r.all[0].args)
		args[slices.Index(args, flag)+1] = value
		for _, flag := range []string{"--health", "--admin"} {
			args[slices.Index(args, flag)+1] = mcptest.FreeAddress(t)
		}
		return args
	}
	for flag, value := range map[string]string{"--record-key": another, "--run-key": "modern=process"} {
		args := append([]string{"run", "--listen", mcptest.FreeAddress(t)}, with(flag, value)...)
		ctx, stop := context.WithTimeout(t.Context(), mcptest.Patience)
		out, err := exec.CommandContext(ctx, mcptest.Proxy(t), args...).CombinedOutput()
		stop()
		if code, _ := err.(*exec.ExitError); code == nil || code.ExitCode() != 1 || !strings.Contains(string(out), "another "+flag) {
			t.Errorf("%s: %v: %s", flag, err, out)
		}
	}
	r.end()
	late := &house{t: t, args: with("--record-key", another)}
	late.url, late.process = mcptest.Listen(t, late.args...)
	if x := late.enter(k, "").call("once", ""); x.verdict != "store_unavailable" {
		t.Errorf("by another key: %s", x.raw)
	}
	late.ends(os.Interrupt)
	late.args = with("--record-key", theirs)
	late.anew()
	if x := late.enter(k, "").call("once", ""); x.verdict != "invalid_transition" || x.state != "after" {
		t.Errorf("by their key: %s", x.raw)
	}
	late.ends(os.Interrupt)
}
