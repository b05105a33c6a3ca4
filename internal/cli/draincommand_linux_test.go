package cli

import (
	"os/exec"
	"strconv"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// drain ends the proxy as SIGTERM does: what is under way is answered, and the exit code is 0.
func TestDrainCommand(t *testing.T) {
	t.Parallel()
	s, p := followed(t, write(t, "p.yaml", plainPolicy))
	if got := tools(t, s); got != "work" {
		t.Fatalf("shown: %q", got)
	}
	if out, err := exec.Command(mcptest.Proxy(t), "drain", "--pid", strconv.Itoa(p.Process.Pid)).CombinedOutput(); err != nil {
		t.Fatalf("drain: %v\n%s", err, out)
	}
	p.Log().Await(t, "drained")
	if code := p.ExitCode(); code != 0 {
		t.Errorf("the proxy ended with %d", code)
	}
}

// Another program is never told to end: in a pod whose containers share their processes, process 1 is none of ours.
func TestDrainCommandLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	other := exec.CommandContext(t.Context(), "sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(mcptest.Proxy(t), "drain", "--pid", strconv.Itoa(other.Process.Pid)).CombinedOutput()
	if err == nil {
		t.Error("drain told another program to end")
	}
	contains(t, string(out), "is no fsm-proxy")
	out, err = exec.Command(mcptest.Proxy(t), "drain", "--pid", "4194304").CombinedOutput() // above any that Linux gives
	if err == nil {
		t.Error("drain of a process that is not there went well")
	}
	contains(t, string(out), "looking at process")
	if err := other.Process.Kill(); err != nil {
		t.Errorf("the other program has ended: %v", err)
	}
	_ = other.Wait()
}
