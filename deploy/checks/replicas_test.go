package checks

import (
	"slices"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	disruption "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// podIP is the variable of the pod's own address, which is no flag's.
const podIP = "POD_IP"

func headless(s *core.Service) bool { return s.Spec.ClusterIP == core.ClusterIPNone }

// replicas is what the chart makes of pods that share a database, with more values.
func replicas(t *testing.T, more string) []runtime.Object {
	t.Helper()
	rendered, err := helm(t, values["replicas"]+more)
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, rendered)
}

// Pods that share a database find each other, by chart and component alike: at an address that is the pod's own, and a port
// that they alone reach.
func TestReplicas(t *testing.T) {
	for where, all := range map[string][]runtime.Object{"helm": replicas(t, ""), "kustomize": exampleWith(t, "replicas")} {
		t.Run(where, func(t *testing.T) {
			d := the[*apps.Deployment](t, all)
			if *d.Spec.Replicas != 3 || d.Spec.Strategy.Type != apps.RollingUpdateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
				t.Errorf("%d replicas, %+v", *d.Spec.Replicas, d.Spec.Strategy)
			}
			checkPod(t, d.Spec.Template)
			checkPeers(t, sidecar(t, d.Spec.Template.Spec))
			checkSpread(t, d.Spec.Template)
			checkPeersService(t, all, d.Spec.Template)
			checkPeersAlone(t, all, d.Spec.Template)
			budget := the[*disruption.PodDisruptionBudget](t, all)
			selects(t, budget.Spec.Selector, d.Spec.Template.Labels)
			if budget.Spec.MaxUnavailable.String() != "1" {
				t.Errorf("maxUnavailable: %v", budget.Spec.MaxUnavailable)
			}
		})
	}
}

// checkPeers: the proxy has the database, listens for the others at a port of its container, and tells them the pod's address. The
// kubelet expands a variable that stands before what names it.
func checkPeers(t *testing.T, c core.Container) {
	t.Helper()
	at := func(name string) int {
		return slices.IndexFunc(c.Env, func(e core.EnvVar) bool { return e.Name == name })
	}
	ip, advertise := at(podIP), at(variable("advertise"))
	if ip < 0 || c.Env[ip].ValueFrom.FieldRef.FieldPath != "status.podIP" || advertise >= 0 && advertise < ip {
		t.Errorf("the pod's address: %+v", c.Env)
	}
	if store := at(variable("store")); store < 0 || c.Env[store].ValueFrom.SecretKeyRef.Key != "url" {
		t.Errorf("the database: %+v", c.Env)
	}
	if flag(c, "peer-listen") != ":9902" || flag(c, "advertise") != "$("+podIP+"):9902" || portNamed(c, "fsm-peers") != "9902" {
		t.Errorf("it listens for others at %q, tells them %q, and has the ports %v", flag(c, "peer-listen"), flag(c, "advertise"), c.Ports)
	}
}

// checkSpread: pods are spread over nodes, and start nonetheless where there are not enough.
func checkSpread(t *testing.T, pod core.PodTemplateSpec) {
	t.Helper()
	spread := pod.Spec.TopologySpreadConstraints
	if len(spread) != 1 || spread[0].TopologyKey != core.LabelHostname || spread[0].WhenUnsatisfiable != core.ScheduleAnyway {
		t.Fatalf("%+v", spread)
	}
	selects(t, spread[0].LabelSelector, pod.Labels)
}

// checkPeersService: one headless Service has the pods, also those that are not ready; clients come to any pod by the other.
func checkPeersService(t *testing.T, all []runtime.Object, pod core.PodTemplateSpec) {
	t.Helper()
	found := 0
	for _, s := range every[*core.Service](all) {
		if !headless(s) {
			checkService(t, s, true)
			continue
		}
		found++
		selects(t, meta.SetAsLabelSelector(s.Spec.Selector), pod.Labels)
		if p := s.Spec.Ports[0]; !s.Spec.PublishNotReadyAddresses || p.TargetPort.IntVal != 9902 {
			t.Errorf("%+v", s.Spec)
		}
	}
	if found != 1 {
		t.Errorf("%d headless Services", found)
	}
}

// checkPeersAlone: of all that is let into the pods, the pods alone are at the port.
func checkPeersAlone(t *testing.T, all []runtime.Object, pod core.PodTemplateSpec) {
	t.Helper()
	let := 0
	for _, p := range every[*networking.NetworkPolicy](all) {
		selects(t, &p.Spec.PodSelector, pod.Labels)
		for _, rule := range p.Spec.Ingress {
			if len(rule.Ports) == 0 {
				t.Errorf("%s lets somebody in at every port", p.Name)
			}
			if !slices.ContainsFunc(rule.Ports, func(p networking.NetworkPolicyPort) bool { return p.Port.IntVal == 9902 }) {
				continue
			}
			let++
			if len(rule.From) != 1 || len(rule.Ports) != 1 || rule.From[0].NamespaceSelector != nil {
				t.Fatalf("%s: %+v", p.Name, rule)
			}
			selects(t, rule.From[0].PodSelector, pod.Labels)
		}
	}
	if let != 1 {
		t.Errorf("%d rules let pods in at the port", let)
	}
}

// What is given counts, as many replicas as there are to be, none among them, and what is asked to be left out.
func TestHelmReplicasAreChosen(t *testing.T) {
	for more, want := range map[string]int32{"": 3, "replicas: 0\n": 0, "replicas: 1\n": 1, "replicas: 5\n": 5} {
		if d := the[*apps.Deployment](t, replicas(t, more)); *d.Spec.Replicas != want {
			t.Errorf("%q: %d", more, *d.Spec.Replicas)
		}
	}
	rendered, err := helm(t, values["least"])
	if err != nil {
		t.Fatal(err)
	}
	if d := the[*apps.Deployment](t, objects(t, rendered)); *d.Spec.Replicas != 1 {
		t.Errorf("%d replicas without a database", *d.Spec.Replicas)
	}
	all := replicas(t, "podDisruptionBudget: {enabled: false}\nnetworkPolicy: {enabled: false}\npod: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}\n")
	spread := the[*apps.Deployment](t, all).Spec.Template.Spec.TopologySpreadConstraints
	if len(every[*disruption.PodDisruptionBudget](all))+len(every[*networking.NetworkPolicy](all)) > 0 || len(spread) != 1 || spread[0].TopologyKey != "zone" {
		t.Errorf("%+v", spread)
	}
}

// A drain gives runs away while the pod is there still: what it takes is within the pod's grace.
func TestHelmReplicasEndInTime(t *testing.T) {
	pod := the[*apps.Deployment](t, replicas(t, "end: {drain: 100, sleep: 110, grace: 120}\n")).Spec.Template
	checkEnd(t, sidecar(t, pod.Spec), pod.Spec)
	if *pod.Spec.TerminationGracePeriodSeconds != 120 || flag(sidecar(t, pod.Spec), "drain") != "100s" {
		t.Errorf("%v, %s", *pod.Spec.TerminationGracePeriodSeconds, flag(sidecar(t, pod.Spec), "drain"))
	}
}
