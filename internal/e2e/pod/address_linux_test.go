//go:build long

package pod

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Probes and metrics are answered whatever the Host; they tell nobody more than docs/admin.md says.
func TestProbesByThePodsAddress(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	k.startAll()
	for _, host := range []string{"", "localhost", "fsm-proxy.monitoring.svc:9901", "evil.example", k.node} {
		for _, path := range []string{"/livez", "/readyz", "/startupz", "/metrics"} {
			if code, body := k.get(host, path); code != http.StatusOK {
				t.Errorf("%s under Host %q is answered %d %s", path, host, code, body)
			}
		}
		for _, path := range []string{"/v1/policy", "/v1/sessions", "/v1/log-level", "/debug/pprof/", "/mcp"} {
			if code, _ := k.get(host, path); code != http.StatusNotFound {
				t.Errorf("%s at the health port is answered %d", path, code)
			}
		}
	}
}

const hello = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"outside","version":"1"}}`

// Clients from outside of the pod: any Host, no Origin, and never without the token.
func TestClientsFromOutside(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	k.startAll()
	for name, test := range map[string]struct {
		header, value string
		want          int
	}{
		"a Service's name": {"Host", "playwright.default.svc.cluster.local", http.StatusOK},
		"a foreign host":   {"Host", "evil.example", http.StatusOK},
		"a web page":       {"Origin", "https://evil.example", http.StatusForbidden},
		"a page of here":   {"Origin", "http://localhost:8080", http.StatusForbidden},
		"another's token":  {"Authorization", "Bearer another", http.StatusUnauthorized},
		"no token":         {"Authorization", "", http.StatusUnauthorized},
	} {
		_, web := k.dial()
		web.Header.Set(test.header, test.value)
		if answer := web.Post(t.Context(), mcptest.Request(1, "initialize", hello)); answer.Status != test.want {
			t.Errorf("%s: HTTP %d %s", name, answer.Status, answer.Body)
		}
	}
	k.measures(4, "fsm_proxy_authentication_failures_total")
}

// From outside of the pod there are two ports and no more; the admin socket is not even seen by the server.
func TestNothingElseListens(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	k.startAll()
	const anywhere, loopback = "00000000000000000000000000000000", "0100007F"
	port := func(address string) string { return address[strings.LastIndexByte(address, ':'):] }
	want := []string{anywhere + ":" + k.manifest.port("mcp"), anywhere + ":" + k.manifest.port("fsm-health"), loopback + port(k.manifest.upstream())}
	slices.Sort(want)
	if got := k.listening(); !slices.Equal(got, want) {
		t.Errorf("listening: %v, not %v", got, want)
	}
	if connection, err := net.Dial("tcp", k.ip+port(k.manifest.upstream())); err == nil {
		connection.Close()
		t.Error("the server can be reached from outside")
	}
	socket := strings.TrimPrefix(k.manifest.env("FSM_PROXY_ADMIN"), "unix:")
	sees := func(c *container) bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", c.running().Process.Pid, socket))
		return err == nil
	}
	if !sees(k.sidecar) || sees(k.server) {
		t.Errorf("the sidecar sees the admin socket: %v, the server does: %v", sees(k.sidecar), sees(k.server))
	}
}

// The sidecar has what the manifest leaves it: this user, no capabilities, a root that it cannot write to.
func TestConfinement(t *testing.T) {
	t.Parallel()
	k := run(newPod(t, walk, inAHurry))
	k.startAll()
	got := status(k.sidecar.running().Process.Pid)
	user := fmt.Sprint(orRoot(k.manifest.Init[0].SecurityContext.User))
	for name, want := range map[string]string{
		"Uid": strings.Join([]string{user, user, user, user}, " "), "CapEff": "0000000000000000", "CapBnd": "0000000000000000", "NoNewPrivs": "1", "NSpid": got["Pid"] + " 1",
	} {
		if got[name] != want {
			t.Errorf("%s is %s, not %s", name, got[name], want)
		}
	}
	if said, code := k.sidecar.exec(entrypoint, "init", "-o", "/here.yaml", "--upstream", k.manifest.env("FSM_PROXY_UPSTREAM")); code == 0 {
		t.Errorf("it can write to its root: %s", said)
	}
}
