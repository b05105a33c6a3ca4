package checks

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// patience is how long anything may take.
const patience = 30 * time.Second

// The sidecar of the example runs as the kubelet runs it: as process 1 of its own, as 65532, in a root that holds the
// program and its volumes and is not its own to write. It has started though the server is not there yet, is ready when
// that listens, and its preStop ends it with 0.
func TestSidecarRunsInAnEmptyRoot(t *testing.T) {
	all := objects(t, kustomize(t, "kustomize", "example"))
	c := sidecar(t, the[*apps.Deployment](t, all).Spec.Template.Spec)
	box := newBox(t, all, c)
	health := box.start(t, c)
	for _, probe := range []*core.Probe{c.StartupProbe, c.LivenessProbe} {
		box.await(t, "http://"+health+probe.HTTPGet.Path)
	}
	server, err := net.Listen("tcp", box.upstream)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	box.await(t, "http://"+health+c.ReadinessProbe.HTTPGet.Path)
	checkMetrics(t, box.await(t, "http://"+health+"/metrics"))
	if said := box.exec(t, entrypoint, "admin", "GET", "/v1/policy"); !strings.Contains(said, "digest") {
		t.Errorf("fsm-proxy admin says %s", said)
	}
	box.exec(t, c.Lifecycle.PreStop.Exec.Command...)
	if code := box.exitCode(t); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, box.log.String())
	}
}

// A box is a container: a folder that is a root, and one process in it with a process space of its own.
type box struct {
	root     string
	env      []string
	upstream string // where the server is to listen
	serves   string // where clients come
	cmd      *exec.Cmd
	log      *output
	ended    chan struct{}
}

// output is what a process writes. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// newBox lays out the root: the program, and the volumes as the kubelet does, with what the ConfigMaps hold.
func newBox(t *testing.T, all []runtime.Object, c core.Container) *box {
	t.Helper()
	b := &box{root: t.TempDir(), log: &output{}, ended: make(chan struct{})}
	if err := os.Mkdir(filepath.Join(b.root, filepath.Dir(entrypoint)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(program(t), filepath.Join(b.root, entrypoint)); err != nil {
		t.Fatal(err)
	}
	contents := map[string]map[string]string{"fsm-proxy-bearer": {"token": "secret"}, "fsm-proxy-run": nil}
	for _, m := range every[*core.ConfigMap](all) {
		contents[m.Name] = m.Data
	}
	for _, mount := range c.VolumeMounts {
		b.mount(t, mount, contents[mount.Name])
	}
	for _, folder := range []string{"proc", "tmp"} {
		if err := os.Mkdir(filepath.Join(b.root, folder), 0o555); err != nil {
			t.Fatal(err)
		}
	}
	b.upstream = freeAddress(t)
	for _, e := range c.Env {
		if e.Name == variable("upstream") {
			e.Value = "http://" + b.upstream + "/mcp"
		}
		b.env = append(b.env, e.Name+"="+e.Value)
	}
	return b
}

// mount writes a volume: files behind the link ..data, which the kubelet swaps, or a folder that may be written.
func (b *box) mount(t *testing.T, m core.VolumeMount, files map[string]string) {
	t.Helper()
	folder := filepath.Join(b.root, m.MountPath)
	data := filepath.Join(folder, "..2026_11_21")
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if !m.ReadOnly {
		if err := os.Chmod(folder, 0o777); err != nil { // as an emptyDir is
			t.Fatal(err)
		}
		b.env = append(b.env, variable("store")+"=sqlite:"+filepath.Join(m.MountPath, "runs.db")) // so that its metrics are there
		return
	}
	if err := os.Symlink(filepath.Base(data), filepath.Join(folder, "..data")); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(data, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// start runs the container's own command line, but for its ports, which are free ones on loopback. It returns where
// health is.
func (b *box) start(t *testing.T, c core.Container) (health string) {
	t.Helper()
	if err := os.Chmod(b.root, 0o555); err != nil {
		t.Fatal(err)
	}
	health, b.serves = freeAddress(t), freeAddress(t)
	args := []string{"--pid", "--fork", "--mount", "--root", b.root, "--mount-proc"}
	args = append(args, identity()...)
	args = append(args, entrypoint)
	for _, a := range c.Args {
		switch name, _, _ := strings.Cut(a, "="); name {
		case "--listen":
			a = "--listen=" + b.serves
		case "--health":
			a = "--health=" + health
		}
		args = append(args, a)
	}
	b.cmd = exec.Command("unshare", args...)
	b.cmd.Env, b.cmd.Stdout, b.cmd.Stderr = b.env, b.log, b.log
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = b.cmd.Wait() // the exit code is in ProcessState
		close(b.ended)
	}()
	t.Cleanup(b.kill)
	return health
}

// kill ends the container with all that is in it, by its process 1.
func (b *box) kill() {
	if children, err := b.children(); err == nil && len(children) == 1 {
		if first, err := strconv.Atoi(children[0]); err == nil {
			_ = syscall.Kill(first, syscall.SIGKILL)
		}
	}
	<-b.ended
}

// children are the processes that the container's starter has: its process 1, as it is called outside.
func (b *box) children() ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", b.cmd.Process.Pid))
	return strings.Fields(string(text)), err
}

// identity is 65532, where one may choose; without being root one is root of a user space of one's own.
func identity() []string {
	if os.Getuid() == 0 {
		return []string{"--setuid", "65532", "--setgid", "65532"}
	}
	return []string{"--map-root-user"}
}

// exec runs a command in the container, as a hook is, and returns what it says.
func (b *box) exec(t *testing.T, command ...string) string {
	t.Helper()
	args := []string{"--target", b.first(t), "--pid", "--mount", "--root"}
	if os.Getuid() == 0 {
		args = append(args, "--setuid", "65532", "--setgid", "65532")
	} else {
		args = append(args, "--user", "--preserve-credentials")
	}
	cmd := exec.Command("nsenter", append(args, command...)...)
	cmd.Env = b.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s\n%s", command, err, out, b.log)
	}
	return string(out)
}

// first is the container's process 1.
func (b *box) first(t *testing.T) string {
	t.Helper()
	children, err := b.children()
	if err != nil || len(children) != 1 {
		t.Fatalf("looking for process 1: %v, %v\n%s", err, children, b.log)
	}
	return children[0]
}

// await asks until the answer is 200, and returns it.
func (b *box) await(t *testing.T, url string) []byte {
	t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		answer, err := http.Get(url)
		if err == nil {
			page, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return page
			}
		}
		select {
		case <-again.C:
		case <-b.ended:
			t.Fatalf("%s: the container has ended:\n%s", url, b.log)
		case <-end.C:
			t.Fatalf("%s: %v\n%s", url, err, b.log)
		}
	}
}

func (b *box) exitCode(t *testing.T) int {
	t.Helper()
	select {
	case <-b.ended:
		return b.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("it does not end:\n%s", b.log)
		return -1
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// checkMetrics: what the program exports is what rules and dashboard know, with no other labels, and promtool finds
// nothing wrong with it.
func checkMetrics(t *testing.T, page []byte) {
	t.Helper()
	lintMetrics(t, bytes.NewReader(page))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for name, family := range families {
		if !strings.HasPrefix(name, "fsm_proxy_") && !strings.HasPrefix(name, "mcp_") {
			continue
		}
		m, known := named(name)
		if !known {
			t.Errorf("%s is exported, and nobody knows it", name)
		}
		for _, label := range family.GetMetric()[0].GetLabel() {
			if !slices.Contains(m.labels, label.GetName()) {
				t.Errorf("%s has a label %s that nobody knows", name, label.GetName())
			}
		}
	}
	for _, m := range metrics {
		if len(m.labels) == 0 && families[m.name] == nil && !slices.Contains(ofReplicas, m.name) {
			t.Errorf("%s is not exported", m.name)
		}
	}
}
