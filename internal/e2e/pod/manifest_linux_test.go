//go:build long

package pod

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// manifest is what the tests need of deploy/kustomize/sidecar, which deploy/checks holds to the types of Kubernetes.
type manifest struct {
	Grace   int          `yaml:"terminationGracePeriodSeconds"`
	Init    []containers `yaml:"initContainers"`
	Volumes []struct {
		Name      string
		ConfigMap *struct{ Name string } `yaml:"configMap"`
		Secret    *struct {
			Name string `yaml:"secretName"`
		}
	}
	serverSleep int // seconds, of the server's preStop
}

type containers struct {
	Name          string
	RestartPolicy string `yaml:"restartPolicy"`
	Args          []string
	Env           []struct{ Name, Value string }
	Ports         []struct {
		Name   string
		Number int `yaml:"containerPort"`
	}
	Lifecycle struct {
		PreStop struct{ Exec struct{ Command []string } } `yaml:"preStop"`
	}
	Startup         probe `yaml:"startupProbe"`
	Readiness       probe `yaml:"readinessProbe"`
	Liveness        probe `yaml:"livenessProbe"`
	SecurityContext struct {
		User     int  `yaml:"runAsUser"`
		ReadOnly bool `yaml:"readOnlyRootFilesystem"`
	} `yaml:"securityContext"`
	Mounts []struct {
		Name     string
		Path     string `yaml:"mountPath"`
		ReadOnly bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTP struct{ Path, Port string } `yaml:"httpGet"`
	// Seconds between two, and how many in a row must fail.
	Period    int `yaml:"periodSeconds"`
	Threshold int `yaml:"failureThreshold"`
}

// readManifest reads the component.
func readManifest(t *testing.T) *manifest {
	t.Helper()
	var deployment struct {
		Spec struct {
			Template struct {
				Spec manifest
			}
		}
	}
	read(t, "kustomize/sidecar/sidecar.yaml", &deployment)
	var patch []struct {
		Value struct {
			PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
		}
	}
	read(t, "kustomize/sidecar/prestop.yaml", &patch)
	m := &deployment.Spec.Template.Spec
	if len(m.Init) != 1 || m.Init[0].RestartPolicy != "Always" || len(patch) != 1 || patch[0].Value.PreStop.Sleep.Seconds == 0 {
		t.Fatalf("reading the component: it is not as this test knows it: %+v %+v", m, patch)
	}
	m.serverSleep = patch[0].Value.PreStop.Sleep.Seconds
	return m
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(mcptest.Root(), "deploy", path))
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("reading deploy/%s: %v", path, err)
	}
}

// port is a named port of the sidecar.
func (m *manifest) port(name string) string {
	for _, p := range m.Init[0].Ports {
		if p.Name == name {
			return strconv.Itoa(p.Number)
		}
	}
	return name
}

// upstream is where the server is to listen.
func (m *manifest) upstream() (address string) {
	url := m.env("FSM_PROXY_UPSTREAM")
	address, _, _ = strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	return address
}

func (m *manifest) env(name string) string {
	for _, v := range m.Init[0].Env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

// times are those of a pod.
type times struct {
	drain        time.Duration // 0: as the manifest has it
	sleep, grace time.Duration
	faster       time.Duration // how much faster than the manifest's are the probes, and the kubelet's back-off
}

// inAHurry are short times: in the same order, and near to one another.
var inAHurry = times{drain: 2 * time.Second, sleep: 5 * time.Second, grace: 8 * time.Second, faster: 20}

// times are the manifest's own.
func (m *manifest) times() times {
	return times{sleep: time.Duration(m.serverSleep) * time.Second, grace: time.Duration(m.Grace) * time.Second, faster: 1}
}

// args are the sidecar's, with another --drain if there is one.
func (m *manifest) args(drain time.Duration) (args []string) {
	for _, arg := range m.Init[0].Args {
		if strings.HasPrefix(arg, "--drain=") && drain > 0 {
			arg = "--drain=" + drain.String()
		}
		args = append(args, arg)
	}
	return args
}
