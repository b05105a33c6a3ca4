//go:build long

package pod

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// token is what the Secret holds.
const token = "the-clients-own"

// pod is a network with two containers in it, and the volumes that they mount.
type pod struct {
	t        *testing.T
	ip       string
	node     string // the node's address, as the pod sees it
	manifest *manifest
	times    times
	sandbox  *mcptest.Process
	volumes  map[string]*mcptest.Volume
	folders  map[string]string // by volume: what is mounted
	upstream *mcptest.Upstream // nil: the server is a stock one
	sidecar  *container
	server   *container
	journal  *journal
	halt     func() // ends all that runs; set by who runs it
}

var pods atomic.Int32

// newPod makes a pod in which nothing runs yet, with a policy.
func newPod(t *testing.T, policy string, times times) *pod {
	t.Helper()
	number := strconv.Itoa(int(pods.Add(1)))
	p := &pod{
		t: t, ip: podNetwork + number + ".2", node: podNetwork + number + ".1", manifest: readManifest(t), times: times,
		volumes: make(map[string]*mcptest.Volume), folders: make(map[string]string), journal: newJournal(),
	}
	p.connect(number)
	p.fill(policy)
	p.upstream = mcptest.Served(t, "server", p.node+":0")
	p.sidecar = p.newSidecar()
	p.server = p.newServer(p.upstream.ServedCommand(p.manifest.upstream())...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the pod's journal:\n%s", p.journal)
		}
	})
	return p
}

// connect makes the pod's network, and joins the node to it.
func (p *pod) connect(number string) {
	p.t.Helper()
	p.sandbox = p.start(unix.CLONE_NEWNET|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS, sandboxWord, number)
	p.sandbox.Log().Await(p.t, sandboxReady)
	if err := address("pod"+number, netip.MustParseAddr(p.node)); err != nil {
		p.t.Fatal(err)
	}
}

// start starts the test binary as a part of the pod.
func (p *pod) start(flags uintptr, word string, what any) *mcptest.Process {
	p.t.Helper()
	text, ok := what.(string)
	if !ok {
		raw, err := json.Marshal(what)
		if err != nil {
			p.t.Fatal(err)
		}
		text = string(raw)
	}
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	return mcptest.StartAs(p.t, func(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags} }, self, word, text)
}

const (
	policyMap = "fsm-proxy-policy"
	configMap = "fsm-proxy-config"
	enforcing = "version: 1\nmode: enforce\n"
	shadowing = "version: 1\nmode: shadow\n"
)

// fill makes the volumes that the manifest names.
func (p *pod) fill(policy string) {
	p.t.Helper()
	maps := map[string]map[string]string{
		policyMap:          {"policy.yaml": policy},
		configMap:          {"fsm-proxy.yaml": enforcing},
		"fsm-proxy-bearer": {"token": token},
	}
	for _, v := range p.manifest.Volumes {
		name := ""
		switch {
		case v.ConfigMap != nil:
			name = v.ConfigMap.Name
		case v.Secret != nil:
			name = v.Secret.Name
		default:
			p.folders[v.Name] = p.emptyDir()
			continue
		}
		p.volumes[name] = mcptest.NewVolume(p.t, maps[name])
		p.folders[v.Name] = p.volumes[name].Path("")
	}
}

// emptyDir is a folder that everybody can write to, as the kubelet makes it.
func (p *pod) emptyDir() string {
	p.t.Helper()
	dir := filepath.Join(p.t.TempDir(), "empty")
	if err := os.Mkdir(dir, 0o777); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		p.t.Fatal(err)
	}
	return dir
}

// swap changes a ConfigMap's only file as the kubelet does.
func (p *pod) swap(name, text string) {
	p.t.Helper()
	file := map[string]string{policyMap: "policy.yaml", configMap: "fsm-proxy.yaml"}[name]
	p.volumes[name].Swap(map[string]string{file: text})
}

// entrypoint is where the image has the program; deploy/checks holds the manifests to it.
const entrypoint = "/ko-app/fsm-proxy"

// newSidecar is the container of the manifest.
func (p *pod) newSidecar() *container {
	m := p.manifest.Init[0]
	c := &container{pod: p, name: m.Name, stop: m.Lifecycle.PreStop.Exec.Command, spec: spec{
		ReadOnly: m.SecurityContext.ReadOnly, User: m.SecurityContext.User, Env: []string{"GORACE=atexit_sleep_ms=50"},
		Command: append([]string{entrypoint}, p.manifest.args(p.times.drain)...),
		Mounts:  []mount{{mcptest.Proxy(p.t), entrypoint, true}},
	}}
	for _, v := range m.Env {
		c.spec.Env = append(c.spec.Env, v.Name+"="+v.Value)
	}
	for _, v := range m.Mounts {
		c.spec.Mounts = append(c.spec.Mounts, mount{p.folders[v.Name], v.Path, v.ReadOnly})
	}
	return c
}

// newServer is the pod's own container: a program of this machine.
func (p *pod) newServer(command ...string) *container {
	c := &container{pod: p, name: "server", spec: spec{User: 1000, Command: command}}
	for _, word := range command {
		if info, err := os.Stat(word); err == nil && filepath.IsAbs(word) && !info.IsDir() {
			c.spec.Mounts = append(c.spec.Mounts, mount{word, word, true})
		}
	}
	return c
}

// url is the pod's endpoint for clients.
func (p *pod) url() string { return fmt.Sprintf("http://%s:%s/mcp", p.ip, p.manifest.port("mcp")) }

// dial returns a client that has the token.
func (p *pod) dial() (*mcptest.Session, *mcptest.Web) {
	p.t.Helper()
	s, web := mcptest.DialWeb(p.t, p.url())
	web.Header.Set("Authorization", "Bearer "+token)
	return s, web
}

// join opens a client's session.
func (p *pod) join() (*mcptest.Session, *mcptest.Web) {
	p.t.Helper()
	s, web := p.dial()
	s.Initialize()
	return s, web
}
