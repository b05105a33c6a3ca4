package checks

import (
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	disruption "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// everything is what the chart makes of the values that ask for all its parts.
func everything(t *testing.T) (all []runtime.Object, pod core.PodTemplateSpec) {
	t.Helper()
	rendered, err := helm(t, values["everything"])
	if err != nil {
		t.Fatal(err)
	}
	all = objects(t, rendered)
	return all, the[*apps.Deployment](t, all).Spec.Template
}

// What is off unless it is asked for.
func TestHelmMakesNoPartUnasked(t *testing.T) {
	rendered, err := helm(t, values["least"])
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, rendered)
	if n := len(every[*disruption.PodDisruptionBudget](all)) + len(every[*monitoring.ServiceMonitor](all)) + len(every[*gateway.HTTPRoute](all)); n > 0 {
		t.Errorf("%d parts that nobody has asked for", n)
	}
}

func TestHelmServerHasItsProbesAndEnvironment(t *testing.T) {
	_, pod := everything(t)
	server, proxy := pod.Spec.Containers[0], sidecar(t, pod.Spec)
	switch {
	case server.StartupProbe == nil || server.StartupProbe.Exec.Command[1] != "started" || server.StartupProbe.FailureThreshold != 60:
		t.Errorf("startupProbe: %v", server.StartupProbe)
	case server.ReadinessProbe == nil || server.ReadinessProbe.Exec.Command[1] != "ready":
		t.Errorf("readinessProbe: %v", server.ReadinessProbe)
	case server.LivenessProbe == nil || server.LivenessProbe.TCPSocket.Port.IntVal != 3001:
		t.Errorf("livenessProbe: %v", server.LivenessProbe)
	case len(server.EnvFrom) != 1 || server.EnvFrom[0].SecretRef.Name != "api-keys":
		t.Errorf("envFrom of the server: %v", server.EnvFrom)
	case len(proxy.EnvFrom) != 1 || proxy.EnvFrom[0].ConfigMapRef.Name != "proxies":
		t.Errorf("envFrom of the proxy: %v", proxy.EnvFrom)
	}
}

// selects fails the test unless a selector matches labels.
func selects(t *testing.T, selector *meta.LabelSelector, of map[string]string) {
	t.Helper()
	s, err := meta.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	if s.Empty() || !s.Matches(labels.Set(of)) {
		t.Errorf("%s does not select %v", s, of)
	}
}

func TestHelmDisruptionBudgetIsForThePods(t *testing.T) {
	all, pod := everything(t)
	budget := the[*disruption.PodDisruptionBudget](t, all)
	selects(t, budget.Spec.Selector, pod.Labels)
	if budget.Spec.MaxUnavailable.String() != "30%" {
		t.Errorf("maxUnavailable: %v", budget.Spec.MaxUnavailable)
	}
}

// The ServiceMonitor finds one Service, at a port that this has, and asks it as the one of deploy/kustomize does.
func TestHelmServiceMonitorFindsTheHealthPort(t *testing.T) {
	all, _ := everything(t)
	monitor := the[*monitoring.ServiceMonitor](t, all)
	found := 0
	for _, s := range every[*core.Service](all) {
		selector, err := meta.LabelSelectorAsSelector(&monitor.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Spec.Ports {
			if selector.Matches(labels.Set(s.Labels)) && p.Name == monitor.Spec.Endpoints[0].Port {
				found++
			}
		}
	}
	if found != 1 {
		t.Errorf("it finds %d ports, and not one", found)
	}
	ours := the[*monitoring.ServiceMonitor](t, objects(t, kustomize(t, "kustomize", "monitoring")))
	want := ours.Spec.Endpoints[0].DeepCopy()
	want.Interval = "15s"
	if !equality.Semantic.DeepEqual(*want, monitor.Spec.Endpoints[0]) || monitor.Labels["release"] != "prometheus" {
		t.Errorf("the endpoint is %+v, with labels %v", monitor.Spec.Endpoints[0], monitor.Labels)
	}
}

// The route leads to the Service's port for clients, and not to the one that everybody is answered at.
func TestHelmRouteLeadsToTheService(t *testing.T) {
	all, _ := everything(t)
	route := the[*gateway.HTTPRoute](t, all)
	rule := route.Spec.Rules[0]
	to := rule.BackendRefs[0]
	service := every[*core.Service](all)[0]
	if string(to.Name) != service.Name || to.Port == nil || *to.Port != service.Spec.Ports[0].Port || service.Spec.Ports[0].Name != "mcp" {
		t.Errorf("it leads to %s:%v", to.Name, to.Port)
	}
	if *rule.Matches[0].Path.Value != "/files" || *rule.Timeouts.Request != "1h" || route.Spec.ParentRefs[0].Name != "gateway" || len(route.Spec.Hostnames) != 2 {
		t.Errorf("%+v", route.Spec)
	}
}

// An API server refuses a route whose timeouts contradict each other: so does this test's validation, by the CEL rules
// of the definition.
func TestRouteIsValidatedByItsDefinition(t *testing.T) {
	all, _ := everything(t)
	route := the[*gateway.HTTPRoute](t, all)
	shorter := gateway.Duration("1s")
	route.Spec.Rules[0].Timeouts.Request = &shorter
	route.Spec.Hostnames = []gateway.Hostname{"no host"}
	if faults := validate(t, route); len(faults) != 2 {
		t.Errorf("faults: %v", faults)
	}
}
