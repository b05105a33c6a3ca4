package checks

import (
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
)

const labelled = `
metadata:
  name: server
  labels: {app: server, fsm-proxy.dev/inject: "true"}
  annotations: {fsm-proxy.dev/upstream-port: "8931"}
`

func TestAdmissionInjects(t *testing.T) {
	got, err := create(t, admissionPlugin(t), pod(t, labelled+`
spec:
  containers:
    - {name: server, image: example.com/server:1}
    - {name: other, image: example.com/other:1}
`))
	if err != nil {
		t.Fatal(err)
	}
	checkPod(t, template(got))
	c := sidecar(t, got.Spec)
	if upstream := flag(c, "upstream"); upstream != "http://127.0.0.1:8931/mcp" {
		t.Errorf("upstream %s", upstream)
	}
	if flag(c, "config") != "" {
		t.Error("a configuration that nobody named")
	}
}

func TestAdmissionLeavesOtherPodsAlone(t *testing.T) {
	plugin := admissionPlugin(t)
	for name, manifest := range map[string]string{
		"unlabelled": "metadata: {name: server, labels: {app: server}}\n",
		"false":      "metadata: {name: server, labels: {fsm-proxy.dev/inject: \"false\"}}\n",
	} {
		before := pod(t, manifest+"spec: {containers: [{name: server, image: example.com/server:1}]}")
		after, err := create(t, plugin, before)
		if err != nil {
			t.Fatal(err)
		}
		before.Namespace = "default"
		scheme.Default(before)
		if !equality.Semantic.DeepEqual(before, after) {
			t.Errorf("%s: %s", name, diff.Diff(before, after))
		}
	}
}

// What came out goes in again and comes out the same: created from a copy, or run again by the API server.
func TestAdmissionIsIdempotent(t *testing.T) {
	plugin := admissionPlugin(t)
	once, err := create(t, plugin, pod(t, labelled+"spec: {containers: [{name: server, image: example.com/server:1}]}"))
	if err != nil {
		t.Fatal(err)
	}
	twice, err := create(t, plugin, once)
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(once, twice) {
		t.Error(diff.Diff(once, twice))
	}
}

// Other admission may add a container after the policy has run: it gets its preStop when the policy is run again.
func TestAdmissionSeesContainersThatCameLater(t *testing.T) {
	plugin := admissionPlugin(t)
	once, err := create(t, plugin, pod(t, labelled+"spec: {containers: [{name: server, image: example.com/server:1}]}"))
	if err != nil {
		t.Fatal(err)
	}
	once.Spec.Containers = append(once.Spec.Containers, core.Container{Name: "mesh", Image: "example.com/mesh:1"})
	twice, err := create(t, plugin, once)
	if err != nil {
		t.Fatal(err)
	}
	checkPod(t, template(twice))
	if n := names(twice.Spec.InitContainers); n != "fsm-proxy" {
		t.Errorf("init containers %s", n)
	}
}

// What a pod has of its own stays.
func TestAdmissionKeepsWhatIsThere(t *testing.T) {
	got, err := create(t, admissionPlugin(t), pod(t, labelled+`
spec:
  terminationGracePeriodSeconds: 300
  initContainers:
    - {name: migrate, image: example.com/migrate:1}
  containers:
    - name: server
      image: example.com/server:1
      lifecycle:
        postStart: {exec: {command: [warm-up]}}
    - name: other
      image: example.com/other:1
      lifecycle:
        preStop: {exec: {command: [say-goodbye]}}
  volumes:
    - name: fsm-proxy-policy
      projected: {sources: [{configMap: {name: mine}}]}
    - name: data
      emptyDir: {}
`))
	if err != nil {
		t.Fatal(err)
	}
	if *got.Spec.TerminationGracePeriodSeconds != 300 {
		t.Error("a longer grace was shortened")
	}
	if n := names(got.Spec.InitContainers); n != "migrate fsm-proxy" {
		t.Errorf("init containers %s", n)
	}
	server, other := got.Spec.Containers[0].Lifecycle, got.Spec.Containers[1].Lifecycle
	if server.PostStart == nil || server.PreStop.Sleep.Seconds != 35 {
		t.Error("the server's postStart went, or it got no preStop")
	}
	if other.PreStop.Exec == nil || other.PreStop.Sleep != nil {
		t.Error("another preStop was touched")
	}
	for _, v := range got.Spec.Volumes {
		if v.Name == "fsm-proxy-policy" && (v.Projected == nil || v.ConfigMap != nil) {
			t.Error("the pod's own volume for the policy was touched")
		}
	}
}

// The annotations choose.
func TestAdmissionReadsAnnotations(t *testing.T) {
	manifest := strings.Replace(labelled, `"8931"`, `"3001", fsm-proxy.dev/upstream-path: /, fsm-proxy.dev/policy: mine,
    fsm-proxy.dev/config: shadow, fsm-proxy.dev/insecure-listen: "true"`, 1)
	got, err := create(t, admissionPlugin(t), pod(t, manifest+"spec: {containers: [{name: server, image: example.com/server:1}]}"))
	if err != nil {
		t.Fatal(err)
	}
	checkPod(t, template(got))
	c := sidecar(t, got.Spec)
	if u := flag(c, "upstream"); u != "http://127.0.0.1:3001/" {
		t.Errorf("upstream %s", u)
	}
	if flag(c, "bearer-file") != "" || !strings.Contains(strings.Join(c.Args, " "), "--insecure-listen") {
		t.Errorf("arguments %v", c.Args)
	}
	maps := map[string]string{}
	for _, v := range got.Spec.Volumes {
		if v.ConfigMap != nil {
			maps[v.Name] = v.ConfigMap.Name
		}
		if v.Secret != nil {
			t.Errorf("a Secret is mounted that nobody needs: %s", v.Secret.SecretName)
		}
	}
	if maps["fsm-proxy-policy"] != "mine" || maps["fsm-proxy-config"] != "shadow" {
		t.Errorf("ConfigMaps %v", maps)
	}
}

// A pod that asks for the proxy and does not say where its server is, or says nonsense, is refused and not let in bare.
func TestAdmissionRefusesWhatItCannotInject(t *testing.T) {
	plugin := admissionPlugin(t)
	for _, annotation := range []string{"other: x", `fsm-proxy.dev/upstream-port: "8931@elsewhere.example"`, `fsm-proxy.dev/upstream-port: ""`} {
		manifest := strings.Replace(labelled, `fsm-proxy.dev/upstream-port: "8931"`, annotation, 1)
		_, err := create(t, plugin, pod(t, manifest+"spec: {containers: [{name: server, image: example.com/server:1}]}"))
		if err == nil {
			t.Errorf("%s: the pod was let in", annotation)
		} else if !strings.Contains(err.Error(), "fsm-proxy") {
			t.Errorf("%s: the refusal does not say by whom: %v", annotation, err)
		}
	}
}

// The policy makes of the example's pod what the Kustomize component makes of it. It leaves the pod its service links:
// whether the server reads them the policy cannot know, and fsm-proxy does not.
func TestAdmissionDoesWhatTheComponentDoes(t *testing.T) {
	component := the[*apps.Deployment](t, objects(t, kustomize(t, "kustomize", "example"))).Spec.Template
	bare := the[*apps.Deployment](t, objects(t, readFile(t, "kustomize", "example", "deployment.yaml"))).Spec.Template
	asked := &core.Pod{ObjectMeta: *bare.ObjectMeta.DeepCopy(), Spec: bare.Spec}
	asked.SetGroupVersionKind(core.SchemeGroupVersion.WithKind("Pod"))
	asked.Name = "playwright"
	asked.Labels["fsm-proxy.dev/inject"] = "true"
	asked.Annotations = map[string]string{"fsm-proxy.dev/upstream-port": "8931", "fsm-proxy.dev/config": "fsm-proxy-config"}
	got, err := create(t, admissionPlugin(t), asked)
	if err != nil {
		t.Fatal(err)
	}
	if component.Spec.EnableServiceLinks = got.Spec.EnableServiceLinks; !isTrue(got.Spec.EnableServiceLinks) {
		t.Error("the pod has lost its service links")
	}
	samePod(t, component, template(got))
}
