package pod

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// await waits for a condition that no channel tells of.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	timeout := time.NewTimer(mcptest.Patience)
	defer timeout.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !condition() {
		select {
		case <-again.C:
		case <-timeout.C:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// get asks the health port, under a Host, and returns the status and the body.
func (k *kubelet) get(host, path string) (int, string) {
	k.t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+net.JoinHostPort(k.ip, k.manifest.port("fsm-health"))+path, nil)
	if err != nil {
		k.t.Fatal(err)
	}
	request.Host = host
	answer, err := k.web.Do(request)
	if err != nil {
		k.t.Errorf("GET %s: %v", path, err)
		return 0, ""
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		k.t.Errorf("GET %s: %v", path, err)
	}
	return answer.StatusCode, string(body)
}

// metric is the sum of the samples of a metric whose labels contain all the texts, as Prometheus gets them.
func (k *kubelet) metric(name string, labels ...string) (sum float64) {
	k.t.Helper()
	_, text := k.get("", "/metrics")
	for line := range strings.Lines(text) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		its, inBraces, _ := strings.Cut(series, "{")
		if its != name || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(inBraces, l) }) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			k.t.Errorf("%s: %v", line, err)
		}
		sum += number
	}
	return sum
}

// measures fails the test unless a metric has a value.
func (k *kubelet) measures(want float64, name string, labels ...string) {
	k.t.Helper()
	if got := k.metric(name, labels...); got != want {
		k.t.Errorf("%s %v is %v, not %v", name, labels, got, want)
	}
}

// inForce is what /v1/policy says.
type inForce struct {
	Digest string
	Mode   string
	Last   *struct {
		Success bool
		Errors  []string
	} `json:"last_reload"`
}

// admin asks the sidecar for /v1/policy as docs/kubernetes.md has it: by the program, in the container.
func (k *kubelet) admin() (p inForce) {
	k.t.Helper()
	said, code := k.sidecar.exec(entrypoint, "admin", "GET", "/v1/policy")
	if err := json.Unmarshal([]byte(said), &p); err != nil || code != 0 {
		k.t.Fatalf("asking /v1/policy: exit code %d, %v: %s", code, err, said)
	}
	return p
}

// status are the lines of /proc/PID/status.
func status(pid int) map[string]string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // a process that has gone has no lines
	lines := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		lines[name] = strings.Join(strings.Fields(value), " ")
	}
	return lines
}

// processes are those for which the condition holds.
func processes(t *testing.T, is func(pid int) bool) (all []int) {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if pid, err := strconv.Atoi(filepath.Base(folder)); err == nil && is(pid) {
			all = append(all, pid)
		}
	}
	return all
}

// children are a process's, zombies too.
func children(t *testing.T, pid int) []int {
	t.Helper()
	return processes(t, func(p int) bool { return status(p)["PPid"] == strconv.Itoa(pid) })
}

// inPod are the processes in the pod's network, but for the one that holds it.
func (p *pod) inPod() []int {
	p.t.Helper()
	network := func(pid int) string {
		link, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		return link
	}
	sandbox := p.sandbox.Process.Pid
	own := network(sandbox)
	return processes(p.t, func(pid int) bool { return pid != sandbox && network(pid) == own })
}

// listening are the addresses in the pod at which something listens, as the kernel writes them: address:port.
func (p *pod) listening() (all []string) {
	p.t.Helper()
	for _, table := range []string{"tcp", "tcp6"} {
		file, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", p.sandbox.Process.Pid, table))
		if err != nil {
			p.t.Fatal(err)
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			const listens = "0A"
			if fields := strings.Fields(lines.Text()); len(fields) > 3 && fields[3] == listens {
				ip, hex, _ := strings.Cut(fields[1], ":")
				port, _ := strconv.ParseUint(hex, 16, 16)
				all = append(all, fmt.Sprintf("%s:%d", ip, port))
			}
		}
		file.Close()
	}
	slices.Sort(all)
	return all
}
