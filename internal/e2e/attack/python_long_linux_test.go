//go:build long

package attack

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// The Python SDK 1.x loses nothing in a drain: its transport ends for a status that is an error, and its caller has no
// result of a tool behind which the tools cannot be listed.
func TestDrainUnderThePythonSDK(t *testing.T) {
	each(t, []way{web, webPipe}, func(r *rig) {
		script := exec.CommandContext(r.t.Context(), mcptest.Python(r.t, mcptest.PythonSDK1), mcptest.PythonScript("drain.py"), r.url)
		var errors strings.Builder
		script.Stderr = &errors
		in, err := script.StdinPipe()
		if err != nil {
			r.t.Fatal(err)
		}
		out, err := script.StdoutPipe()
		if err != nil {
			r.t.Fatal(err)
		}
		if err := script.Start(); err != nil {
			r.t.Fatal(err)
		}
		said := bufio.NewScanner(out)
		step := func(name, want string) {
			r.t.Helper()
			var got struct{ Step, Text, Error string }
			if !said.Scan() || json.Unmarshal(said.Bytes(), &got) != nil || got.Step != name || !strings.Contains(got.Text+got.Error, want) {
				_, _ = io.Copy(io.Discard, out)
				_ = script.Wait()
				r.t.Fatalf("%s: %q, want %q\n%s", name, said.Text(), want, &errors)
			}
		}
		step("too large", "a message may have 4194304 bytes")
		r.upstream.Await(r.t, 1, "tools/call", "hold_open")
		r.end()
		fmt.Fprintln(in)
		step("late", "is ending")
		r.upstream.Open("hold_open")
		fmt.Fprintln(in)
		step("held", "the true answer")
		if err := script.Wait(); err != nil {
			r.t.Errorf("the client ended with %v\n%s", err, &errors)
		}
		r.ended()
	})
}
