//go:build long

package pod

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// told waits until the client is told that its tools have changed.
func told(t *testing.T, s *mcptest.Session) {
	t.Helper()
	for s.Next().Method != "notifications/tools/list_changed" {
	}
}

// A changed ConfigMap is in force for sessions that are open, whose clients are told; nothing is restarted.
func TestPolicyChanges(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	k.startAll()
	client, web := k.join()
	web.Listen()
	holds(t, client.Tool("extra", ""), `"unknown_action"`)
	if p := k.admin(); p.Digest != digest(walk) || p.Last != nil {
		t.Errorf("/v1/policy says %+v", p)
	}
	next := strings.Replace(walk, "[look, wait]", "[look, wait, extra]", 1)
	k.swap(policyMap, next)
	told(t, client)
	holds(t, client.Call("tools/list", ""), `"extra"`)
	holds(t, client.Tool("extra", ""), "done")
	if p := k.admin(); p.Digest != digest(next) || p.Last == nil || !p.Last.Success {
		t.Errorf("/v1/policy says %+v", p)
	}
	k.measures(1, "fsm_proxy_reloads_total", `result="success"`)
	k.measures(1, "fsm_proxy_policy_last_reload_successful")
	k.measures(1, "fsm_proxy_policy_info", `name="walk"`, `digest="`+digest(next)+`"`)
	k.journal.never(t, "fsm-proxy has ended")
}

// A ConfigMap with a mistake is refused, and visible in three places; the last good policy holds, and the pod is ready.
// A process that starts now has no last good one, and does not come up until the mistake is mended.
func TestBadPolicy(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	k.startAll()
	client, _ := k.join()
	k.swap(policyMap, strings.Replace(walk, "initial: start", "initial: stat", 1))
	const mistake, place = `did you mean \"start\"`, "policy.yaml:3:10"
	k.sidecar.running().Log().Await(t, mistake)
	if said := k.sidecar.running().Log().String(); !strings.Contains(said, place) {
		t.Errorf("%s is not in the log:\n%s", place, said)
	}
	p := k.admin()
	if p.Digest != digest(walk) || p.Last == nil || p.Last.Success || len(p.Last.Errors) != 1 || !strings.Contains(p.Last.Errors[0], place) {
		t.Errorf("/v1/policy says %+v %+v", p, p.Last)
	}
	k.measures(0, "fsm_proxy_policy_last_reload_successful")
	k.measures(1, "fsm_proxy_reloads_total", `result="failure"`)
	holds(t, client.Tool("look", ""), "done")
	if why := k.probe(t.Context(), k.manifest.Init[0].Readiness); why != "" {
		t.Errorf("the pod is not ready: %s", why)
	}
	first := k.sidecar.running()
	k.kill(k.sidecar)
	mcptest.Await(t, "the next process refuses to start", func() bool {
		now := k.sidecar.running()
		return now != first && strings.Contains(now.Log().String(), place)
	})
	before := k.journal.await(t, 0, "ready")
	behind := max(k.journal.await(t, before, "fsm-proxy has ended with 1"), k.journal.await(t, before, "unready"))
	k.swap(policyMap, walk)
	k.journal.await(t, behind, "ready")
	other, _ := k.join()
	holds(t, other.Tool("look", ""), "done")
}

// The mode is changed by a ConfigMap, for sessions that are open.
func TestModeChanges(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	k.startAll()
	client, web := k.join()
	web.Listen()
	holds(t, client.Tool("extra", ""), `"unknown_action"`)
	k.swap(configMap, shadowing)
	told(t, client)
	holds(t, client.Tool("extra", ""), "done")
	k.measures(1, "fsm_proxy_mode", `mode="shadow"`)
	k.measures(1, "fsm_proxy_shadow_refusals_total", `reason="unknown_action"`)
	if p := k.admin(); p.Mode != "shadow" {
		t.Errorf("/v1/policy says %+v", p)
	}
	k.swap(configMap, enforcing)
	told(t, client)
	holds(t, client.Tool("extra", ""), `"unknown_action"`)
	k.measures(0, "fsm_proxy_mode", `mode="shadow"`)
	k.measures(2, "fsm_proxy_refusals_total", `reason="unknown_action"`)
}
