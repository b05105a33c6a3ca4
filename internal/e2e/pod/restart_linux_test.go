//go:build long

package pod

import (
	"strings"
	"syscall"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// kill ends a container's process as the kernel does when memory runs out.
func (k *kubelet) kill(c *container) {
	k.t.Helper()
	if err := c.running().Process.Kill(); err != nil {
		k.t.Fatal(err)
	}
}

// The server dies while it has a call, and is away for a while. The call may have happened, and its run takes the edge
// for that; what comes meanwhile is not sent. All goes on in the same session when the server is there again.
func TestUpstreamDiesInMidCall(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	backOff := make(chan struct{})
	k.server.backOff = backOff
	place := k.startAll()
	client, _ := k.join()
	held := client.Request("tools/call", mcptest.ToolParams("hold", ""))
	k.upstream.Await(t, 1, "tools/call", "hold")
	k.kill(k.server)
	answer, _ := client.Answer(held)
	holds(t, answer, `"isError":true`, `"outcome_unknown"`, `"state":"lost"`, "may have happened")
	k.sidecar.running().Log().Await(t, `"to":"lost"`)
	place = k.journal.await(t, place, "unready: 503")
	holds(t, client.Tool("look", ""), `"upstream_unavailable"`, "Nothing was done")
	close(backOff)
	k.journal.await(t, place, "ready")
	holds(t, client.Tool("hold", ""), `"invalid_transition"`, `"state":"lost"`)
	holds(t, client.Tool("back", ""), "done")
	k.measures(1, "fsm_proxy_transitions_total", `from="start"`, `to="lost"`, `outcome="unknown"`)
	k.measures(1, "mcp_server_operation_duration_seconds_count", `gen_ai_tool_name="hold"`, `error_type="outcome_unknown"`)
	k.measures(1, "fsm_proxy_upstream_restarts_total")
	k.measures(1, "fsm_proxy_refusals_total", `reason="upstream_unavailable"`)
	k.measures(1, "fsm_proxy_sessions")
	k.measures(1, "fsm_proxy_runs", `state="start"`)
	if n := k.upstream.Count("tools/call", "hold"); n != 1 {
		t.Errorf("the call was sent %d times", n)
	}
	k.journal.never(t, "not alive")
	k.journal.never(t, "fsm-proxy has ended")
}

// The sidecar is killed. Another process in its place finds what the last one has left, and clients begin again.
func TestSidecarIsKilled(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	k.startAll()
	client, web := k.join()
	holds(t, client.Tool("look", ""), "done")
	first := k.sidecar.running()
	k.kill(k.sidecar)
	mcptest.Await(t, "another sidecar serves", func() bool {
		return k.sidecar.running() != first && strings.Contains(k.sidecar.running().Log().String(), `"serving"`)
	})
	if answer := web.Post(t.Context(), mcptest.Request("late", "tools/call", mcptest.ToolParams("look", ""))); answer.Status != 404 {
		t.Errorf("a session of the first process is answered HTTP %d %s", answer.Status, answer.Body)
	}
	other, _ := k.join()
	holds(t, other.Tool("look", ""), "done")
	if k.admin().Mode != "enforce" {
		t.Error("the admin socket is not that of the second process")
	}
	if n := k.upstream.Started(); n != 1 {
		t.Errorf("the server was started %d times", n)
	}
}

// A sidecar that hangs does not answer /livez, and is restarted.
func TestSidecarHangs(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	k.startAll()
	if err := k.sidecar.running().Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	k.journal.await(t, k.journal.await(t, 0, "not alive"), "alive")
	k.journal.inOrder(t, "ready", "not alive", "fsm-proxy has ended", "fsm-proxy starts", "alive")
	client, _ := k.join()
	holds(t, client.Tool("look", ""), "done")
}
