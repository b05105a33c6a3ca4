//go:build long

package pod

import (
	"testing"
	"time"
)

// times are the manifest's own.
func (m *manifest) times() times {
	return times{sleep: time.Duration(m.serverSleep) * time.Second, grace: time.Duration(m.Grace) * time.Second, faster: 1}
}

// The same with the manifest's own times.
func TestEndInTheManifestsTime(t *testing.T) {
	t.Parallel()
	p := newPod(t, walk, readManifest(t).times())
	endWithCallsUnderWay(t, run(p))
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
