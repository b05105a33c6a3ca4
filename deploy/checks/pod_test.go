package checks

import (
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
)

// sidecar is the container that every way adds.
func sidecar(t *testing.T, pod core.PodSpec) core.Container {
	t.Helper()
	i := slices.IndexFunc(pod.InitContainers, func(c core.Container) bool { return c.Name == "fsm-proxy" })
	if i < 0 {
		t.Fatal("there is no init container fsm-proxy")
	}
	return pod.InitContainers[i]
}

// checkPod holds a pod to what docs/kubernetes.md says of it.
func checkPod(t *testing.T, pod core.PodTemplateSpec) {
	t.Helper()
	c := sidecar(t, pod.Spec)
	if c.RestartPolicy == nil || *c.RestartPolicy != core.ContainerRestartPolicyAlways {
		t.Error("the sidecar is no native one: restartPolicy is not Always")
	}
	if pod.Labels["fsm-proxy.dev/sidecar"] != "true" {
		t.Error("the pod lacks the label that the NetworkPolicy selects")
	}
	checkProbes(t, c)
	checkConfinement(t, c)
	checkVolumes(t, c, pod.Spec.Volumes)
	checkEnd(t, c, pod.Spec)
}

func checkProbes(t *testing.T, c core.Container) {
	t.Helper()
	for path, probe := range map[string]*core.Probe{"/startupz": c.StartupProbe, "/readyz": c.ReadinessProbe, "/livez": c.LivenessProbe} {
		switch {
		case probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path:
			t.Errorf("no probe asks for %s", path)
		case probe.HTTPGet.Host != "":
			t.Errorf("%s is asked of %s and not of the pod", path, probe.HTTPGet.Host)
		case portNamed(c, probe.HTTPGet.Port.StrVal) != portOf(t, flag(c, "health")):
			t.Errorf("%s is asked at port %v and served at %s", path, probe.HTTPGet.Port.String(), flag(c, "health"))
		}
	}
}

// portNamed is the number of a container's port, as text.
func portNamed(c core.Container, name string) string {
	for _, p := range c.Ports {
		if p.Name == name {
			return itoa(p.ContainerPort)
		}
	}
	return ""
}

func checkConfinement(t *testing.T, c core.Container) {
	t.Helper()
	s := c.SecurityContext
	switch {
	case s == nil:
		t.Fatal("no securityContext")
	case !isTrue(s.RunAsNonRoot) || s.RunAsUser == nil || *s.RunAsUser != 65532 || s.RunAsGroup == nil || *s.RunAsGroup != 65532:
		t.Error("it does not run as 65532")
	case !isTrue(s.ReadOnlyRootFilesystem):
		t.Error("its root is not read-only")
	case s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
		t.Error("it may gain privileges")
	case s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) > 0:
		t.Error("it keeps capabilities")
	case s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault:
		t.Error("no seccomp profile")
	}
	if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
		t.Error("requests of CPU and memory, or the limit of memory, are missing")
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

// checkVolumes: everything is mounted as a folder, since what is mounted by subPath never changes, and all that a flag
// names lies in one.
func checkVolumes(t *testing.T, c core.Container, volumes []core.Volume) {
	t.Helper()
	for _, m := range c.VolumeMounts {
		if m.SubPath != "" || m.SubPathExpr != "" {
			t.Errorf("%s is mounted by subPath", m.Name)
		}
		i := slices.IndexFunc(volumes, func(v core.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			t.Errorf("%s is mounted and is no volume", m.Name)
		} else if writable := volumes[i].EmptyDir != nil || volumes[i].PersistentVolumeClaim != nil; writable == m.ReadOnly {
			t.Errorf("%s: read-only is %v", m.Name, m.ReadOnly)
		}
	}
	for _, name := range []string{"policy", "config", "bearer-file", "admin"} {
		path := strings.TrimPrefix(flag(c, name), "unix:")
		within := func(m core.VolumeMount) bool { return path == m.MountPath || strings.HasPrefix(path, m.MountPath+"/") }
		if path != "" && !slices.ContainsFunc(c.VolumeMounts, within) {
			t.Errorf("--%s %s lies in no volume", name, path)
		}
	}
}

// restOfEnd is what the end takes besides --drain, at most: docs/ending.md.
const restOfEnd = 7 * time.Second

// checkEnd: fsm-proxy is told of the pod's end at once, and is done while the server sleeps; the grace outlasts both.
func checkEnd(t *testing.T, c core.Container, pod core.PodSpec) {
	t.Helper()
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Exec == nil ||
		!slices.Equal(c.Lifecycle.PreStop.Exec.Command, []string{entrypoint, "drain"}) {
		t.Error("the sidecar has no preStop that drains: it would learn of the end when its server has gone")
	}
	drain, err := time.ParseDuration(flag(c, "drain"))
	if err != nil {
		t.Fatalf("--drain: %v", err)
	}
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	for _, app := range pod.Containers {
		if app.Lifecycle == nil || app.Lifecycle.PreStop == nil || app.Lifecycle.PreStop.Sleep == nil {
			t.Errorf("%s has no preStop sleep", app.Name)
			continue
		}
		sleep := time.Duration(app.Lifecycle.PreStop.Sleep.Seconds) * time.Second
		if sleep < drain+restOfEnd || grace <= sleep {
			t.Errorf("drain %v, sleep of %s %v, grace %v: each must outlast the one before", drain, app.Name, sleep, grace)
		}
	}
}

// checkService: sessions stay with a pod, unless pods share a database, and both ports lead to the sidecar's.
func checkService(t *testing.T, s *core.Service, shared bool) {
	t.Helper()
	if stay := s.Spec.SessionAffinity == core.ServiceAffinityClientIP; stay == shared {
		t.Errorf("pods share a database: %v; the Service's session affinity: %v", shared, s.Spec.SessionAffinity)
	}
	for _, p := range s.Spec.Ports {
		if want := map[string]int32{"mcp": 8080, "fsm-health": 9901}[p.Name]; p.TargetPort.IntVal != want {
			t.Errorf("port %s leads to %v and not to %d", p.Name, p.TargetPort.String(), want)
		}
	}
}

// checkMaps: a ConfigMap that is mounted is there, by the very name: a hash in it would make each change a rollout.
func checkMaps(t *testing.T, all []runtime.Object) {
	t.Helper()
	var names []string
	for _, m := range every[*core.ConfigMap](all) {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	if want := []string{"fsm-proxy-config", "fsm-proxy-policy"}; !slices.Equal(names, want) {
		t.Errorf("ConfigMaps %v, not %v", names, want)
	}
}

// template is a pod without its name.
func template(p *core.Pod) core.PodTemplateSpec {
	return core.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
}

func names(containers []core.Container) string {
	var all []string
	for _, c := range containers {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}

// samePod compares the specifications of two pods; the order of volumes means nothing.
func samePod(t *testing.T, want, got core.PodTemplateSpec) {
	t.Helper()
	for _, p := range []*core.PodTemplateSpec{&want, &got} {
		created := &core.Pod{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
		scheme.Default(created) // a pod has some that a template has not
		p.Spec = created.Spec
		slices.SortFunc(p.Spec.Volumes, func(a, b core.Volume) int { return strings.Compare(a.Name, b.Name) })
	}
	if !equality.Semantic.DeepEqual(want.Spec, got.Spec) {
		t.Error(diff.Diff(want.Spec, got.Spec))
	}
	if want.Labels["fsm-proxy.dev/sidecar"] != got.Labels["fsm-proxy.dev/sidecar"] {
		t.Error("only one of them bears the label of pods with a sidecar")
	}
}
