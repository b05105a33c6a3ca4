//go:build long

package pod

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// walk leads from one state to another by a call that can be held.
const walk = `version: 1
name: walk
initial: start
everywhere:
  tools: [look, wait]
states:
  start:
    tools:
      hold: {on_success: there, on_error: stay, on_unknown: lost}
  there: {tools: {back: start}}
  lost: {tools: {back: start}}
`

// server answers look and back at once, wait and hold when the test opens their gates.
func server() mcptest.Server {
	done := func(e *mcptest.Exchange) { e.Result(mcptest.Text("done")) }
	held := func(e *mcptest.Exchange) { e.Async(func() { e.Gate(e.Name); done(e) }) }
	return mcptest.Script{Tools: map[string]func(*mcptest.Exchange){"look": done, "back": done, "extra": done, "wait": held, "hold": held}}.Server()
}

// holds fails the test unless all the texts are in an answer.
func holds(t *testing.T, answer mcptest.Message, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(answer.String(), text) {
			t.Errorf("%q is not in %s", text, answer)
		}
	}
}

// The sidecar starts before the server, for which no startup probe may wait. A client that comes too early waits, and
// has its session when the server is there.
func TestUpstreamStartsAfterTheProxy(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	k.startSidecar()
	place := k.journal.await(t, 0, "unready: 503")
	client, _ := k.dial()
	opened := make(chan mcptest.Message, 1)
	go func() { opened <- client.Initialize() }()
	k.sidecar.running().Log().Await(t, "the upstream is not there: trying again")
	k.startServer()
	k.journal.await(t, place, "ready")
	holds(t, <-opened, `"serverInfo"`)
	holds(t, client.Tool("look", ""), "done")
	k.journal.inOrder(t, "fsm-proxy starts", "startup passed", "unready: 503", "server starts", "ready")
	k.journal.never(t, "not alive")
	k.journal.never(t, "fsm-proxy has ended")
}

// A server as its makers publish it. It is process 1 of its container and does not ask for SIGTERM, so that it is
// killed at the end of the grace, long after fsm-proxy has ended well.
func TestStockServer(t *testing.T) {
	t.Parallel()
	p := newPod(t, strings.Replace(walk, "[look, wait]", "[echo]", 1), inAHurry)
	_, port, _ := strings.Cut(p.manifest.upstream(), ":")
	p.server = p.newServer(append(mcptest.Everything(t)[:2], "streamableHttp")...)
	p.server.spec.Env = []string{"PORT=" + port}
	modules := filepath.Dir(mcptest.NodeScript("node_modules"))
	p.server.spec.Mounts = []mount{{modules, modules, true}}
	k := run(p)
	k.startAll()
	client, _ := k.join()
	holds(t, client.Call("tools/list", ""), `"echo"`)
	holds(t, client.Tool("echo", `{"message":"from a pod"}`), "from a pod")
	holds(t, client.Tool("get-env", ""), `"unknown_action"`)
	k.end()
	k.journal.inOrder(t, "the pod is told to end", "fsm-proxy has ended with 0", "server: SIGTERM", "server: SIGKILL", "server has ended")
	if left := k.inPod(); len(left) > 0 {
		t.Errorf("processes %v are left in the pod", left)
	}
}

// A server that does not come in time: the session is refused, its client told why, and the next one begins.
func TestUpstreamNeverComes(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	k.startSidecar()
	client, _ := k.dial()
	holds(t, client.Initialize(), "-32603", "connection refused")
	k.measures(1, "fsm_proxy_refusals_total", `reason="upstream_unavailable"`)
	k.startServer()
	k.journal.await(t, 0, "ready")
	other, _ := k.join()
	holds(t, other.Tool("look", ""), "done")
	k.journal.never(t, "not alive")
}
