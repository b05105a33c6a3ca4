//go:build long

package pod

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// ending begins the pod's end, and returns what waits for it: it fails the test unless that was within the grace.
func (k *kubelet) ending() (over func()) {
	took := make(chan time.Duration, 1)
	go func() { took <- k.end() }()
	return func() {
		k.t.Helper()
		if time := <-took; time >= k.times.grace {
			k.t.Errorf("the end took %v, of %v", time, k.times.grace)
		}
	}
}

// ended fails the test unless both containers have ended by themselves, and left nothing in the pod.
func (k *kubelet) ended() {
	k.t.Helper()
	for _, c := range []*container{k.sidecar, k.server} {
		if code := c.running().ExitCode(); code != 0 {
			k.t.Errorf("%s has ended with %d", c.name, code)
		}
	}
	if left := k.inPod(); len(left) > 0 {
		k.t.Errorf("processes %v are left in the pod", left)
	}
	k.journal.never(k.t, "server: SIGKILL")
	k.journal.never(k.t, "fsm-proxy: SIGKILL")
	k.journal.never(k.t, "not alive")
}

// A pod is told to end while calls are under way: they are answered, before their server is told to end. What comes
// later is not sent, and readiness fails meanwhile.
func endWithCallsUnderWay(t *testing.T, k *kubelet) {
	k.startAll()
	client, _ := k.join()
	other, web := k.join()
	step := client.Request("tools/call", mcptest.ToolParams("hold", ""))
	stay := other.Request("tools/call", mcptest.ToolParams("wait", ""))
	k.upstream.Await(t, 1, "tools/call", "hold")
	k.upstream.Await(t, 1, "tools/call", "wait")
	over := k.ending()
	place := k.journal.await(t, 0, "fsm-proxy: preStop is over: 0")
	k.measures(1, "fsm_proxy_draining")
	if left := children(t, k.sidecar.running().Process.Pid); len(left) > 0 {
		t.Errorf("processes %v are left to process 1", left)
	}
	_, stranger := k.dial()
	late := mcptest.Request("late", "tools/call", mcptest.ToolParams("look", ""))
	if answer := web.Post(t.Context(), late); answer.Status != http.StatusOK || !strings.Contains(string(answer.Body), "is ending") {
		t.Errorf("a late call is answered HTTP %d %s", answer.Status, answer.Body)
	}
	if answer := stranger.Post(t.Context(), mcptest.Request("late", "initialize", hello)); answer.Status != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("a late initialize is answered HTTP %d %v", answer.Status, answer.Header)
	}
	k.journal.await(t, place, "unready: 503")
	if code, _ := k.get("", "/livez"); code != http.StatusOK {
		t.Errorf("/livez is answered %d", code)
	}
	k.upstream.Open("hold")
	k.upstream.Open("wait")
	answer, _ := client.Answer(step)
	holds(t, answer, "done")
	answer, _ = other.Answer(stay)
	holds(t, answer, "done")
	over()
	k.ended()
	k.journal.inOrder(t, "the pod is told to end", "unready: 503", "fsm-proxy has ended with 0", "server: preStop is over", "server: SIGTERM", "server has ended with 0")
	if n := k.upstream.Count("tools/call", "look"); n != 0 {
		t.Errorf("a late call was sent %d times", n)
	}
}

func TestEndWithCallsUnderWay(t *testing.T) {
	t.Parallel()
	endWithCallsUnderWay(t, run(newPod(t, walk, inAHurry)))
}

// The same with the manifest's own times.
func TestEndInTheManifestsTime(t *testing.T) {
	t.Parallel()
	p := newPod(t, walk, readManifest(t).times())
	endWithCallsUnderWay(t, run(p))
}

// A call that outlasts the drain may have happened, and its client is told so in time; the server is told to stop.
func TestCallOutlastsTheDrain(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	k.startAll()
	client, _ := k.join()
	held := client.Request("tools/call", mcptest.ToolParams("hold", ""))
	k.upstream.Await(t, 1, "tools/call", "hold")
	over := k.ending()
	answer, _ := client.Answer(held)
	holds(t, answer, `"isError":true`, `"outcome_unknown"`, "may have happened", `"state":"lost"`)
	k.upstream.Await(t, 1, "notifications/cancelled")
	over()
	k.ended()
	k.journal.inOrder(t, "the pod is told to end", "fsm-proxy has ended with 0", "server: SIGTERM", "server has ended with 0")
}

// A pod without its sidecar's hook ends as docs/kubernetes.md warns: the call is lost with its server.
func TestEndWithoutTheHook(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	k.sidecar.stop = []string{entrypoint, "version"}
	k.startAll()
	client, _ := k.join()
	held := client.Request("tools/call", mcptest.ToolParams("hold", ""))
	k.upstream.Await(t, 1, "tools/call", "hold")
	over := k.ending()
	k.journal.await(t, 0, "fsm-proxy: preStop is over")
	holds(t, client.Tool("look", ""), "done") // it takes new calls
	answer, _ := client.Answer(held)
	holds(t, answer, `"outcome_unknown"`)
	over()
	k.ended()
	k.journal.inOrder(t, "server: SIGTERM", "server has ended with 0", "fsm-proxy: SIGTERM", "fsm-proxy has ended with 0")
}
