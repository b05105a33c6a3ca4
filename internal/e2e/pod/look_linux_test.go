//go:build long

package pod

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

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

// children are a process's, zombies too.
func children(t *testing.T, pid int) []mcptest.Stat {
	t.Helper()
	return mcptest.Processes(t, func(s mcptest.Stat) bool { return s.Parent == pid })
}

// inPod are the processes in the pod's network, but for the one that holds it.
func (p *pod) inPod() []mcptest.Stat {
	p.t.Helper()
	network := func(pid int) string {
		link, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		return link
	}
	sandbox := p.sandbox.Process.Pid
	own := network(sandbox)
	return mcptest.Processes(p.t, func(s mcptest.Stat) bool { return s.PID != sandbox && network(s.PID) == own })
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
