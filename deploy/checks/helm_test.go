package checks

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var chart = filepath.Join(deploy, "helm", "fsm-proxy")

// helm renders the chart with values, as `helm template` does.
func helm(t *testing.T, values string) ([]byte, error) {
	t.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: "playwright", Namespace: "default", IsInstall: true}
	all, err := chartutil.ToRenderValues(c, given, release, chartutil.DefaultCapabilities.Copy())
	if err != nil {
		return nil, err
	}
	rendered, err := (engine.Engine{Strict: true}).Render(c, all)
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	for name, content := range rendered {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(content) != "" {
			out.WriteString("---\n" + content + "\n")
		}
	}
	return []byte(out.String()), nil
}

// values are sets of values that the chart must be right with.
var values = map[string]string{
	"least": "server: {image: example.com/server:1}\npolicy: {configMap: mine}\n",
	"text": `
server: {image: example.com/server:1}
policy:
  text: |
    version: 1
    initial: a
    states: {a: {tools: [b]}}
`,
	"content": `
server: {image: example.com/server:1}
policy:
  content:
    version: 1
    initial: a
    everywhere: {tools: {look: stay, "*": none}}
    states:
      a: {tools: {do: b, ask: {by: what, cases: {this: b, "that": {on_any: {to: c, terminal: true}}}}}}
      b:
        resources: ["file:///*"]
        prompts: {p: {on_success: a, on_error: {terminal: true}}}
      c: {terminal: true}
`,
	"insecure and shadow": `
server: {image: example.com/server:1, port: 9000, path: /}
policy: {configMap: mine}
config: {content: {mode: shadow}}
auth: {insecure: true}
networkPolicy: {enabled: false}
`,
	"a store on a volume": `
server: {image: example.com/server:1}
policy: {configMap: mine}
store: {claim: runs}
`,
	"a store in a database": `
server: {image: example.com/server:1}
policy: {configMap: mine}
store: {secret: database}
pod: {securityContext: {fsGroup: 1000}}
`,
	"replicas": `
server: {image: example.com/server:1}
policy: {configMap: mine}
store: {secret: database, peerPort: 9902}
`,
	"replicas in another way": `
server: {image: example.com/server:1}
policy: {configMap: mine}
store: {secret: database, peerPort: 10443}
replicas: 5
service: {type: LoadBalancer}
podDisruptionBudget: {enabled: false}
pod: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}
`,
	"parts as they are": `
server: {image: example.com/server:1}
policy: {configMap: mine}
podDisruptionBudget: {enabled: true}
serviceMonitor: {enabled: true}
httpRoute: {enabled: true, parentRefs: [{name: gateway}]}
`,
	"everything": `
server:
  image: example.com/server:1
  pullPolicy: Always
  command: [server]
  args: [--port, "3001"]
  env: [{name: A, value: b}]
  envFrom: [{secretRef: {name: api-keys}}]
  startupProbe: {exec: {command: [server, started]}, failureThreshold: 60}
  readinessProbe: {exec: {command: [server, ready]}}
  livenessProbe: {tcpSocket: {port: 3001}}
  resources: {limits: {memory: 1Gi}}
  securityContext: {runAsNonRoot: true}
  volumeMounts: [{name: data, mountPath: /data}]
policy: {configMap: mine}
config: {configMap: ours}
proxy:
  image: {repository: example.com/proxy, tag: v9, pullPolicy: IfNotPresent}
  args: [--log-level=debug]
  env: [{name: FSM_PROXY_CALL_TIMEOUT, value: 10m}]
  envFrom: [{configMapRef: {name: proxies, optional: true}}]
end: {drain: 100, sleep: 110, grace: 200}
replicas: 3
service: {type: LoadBalancer, port: 8000}
podDisruptionBudget: {enabled: true, maxUnavailable: 30%}
serviceMonitor: {enabled: true, labels: {release: prometheus}, interval: 15s}
httpRoute:
  enabled: true
  annotations: {note: "yes"}
  parentRefs: [{name: gateway, namespace: gateways, sectionName: https}]
  hostnames: [mcp.example.com, "*.mcp.example.com"]
  path: /files
  timeouts: {request: 1h, backendRequest: 30m}
pod:
  labels: {team: agents}
  annotations: {note: "yes"}
  serviceAccountName: server
  imagePullSecrets: [{name: pull}]
  securityContext: {fsGroup: 1000}
  volumes: [{name: data, emptyDir: {}}]
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{operator: Exists}]
  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
`,
}

// A store is one pod's, which is recreated; with a volume the proxy can write that.
func TestHelmStore(t *testing.T) {
	deployment := func(values string) *apps.Deployment {
		t.Helper()
		out, err := helm(t, values)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects(t, out) {
			if d, ok := o.(*apps.Deployment); ok {
				return d
			}
		}
		t.Fatal("no deployment")
		return nil
	}
	env := func(d *apps.Deployment) (e core.EnvVar) {
		for _, x := range d.Spec.Template.Spec.InitContainers[0].Env {
			if x.Name == "FSM_PROXY_STORE" {
				e = x
			}
		}
		return e
	}
	const least = "server: {image: example.com/server:1}\npolicy: {configMap: mine}\n"
	d := deployment(least + "store: {claim: runs}\n")
	pod := d.Spec.Template.Spec
	mounts := pod.InitContainers[0].VolumeMounts
	mounted := slices.ContainsFunc(mounts, func(m core.VolumeMount) bool { return m.MountPath == "/var/lib/fsm-proxy" && !m.ReadOnly })
	claimed := slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "runs"
	})
	if d.Spec.Strategy.Type != apps.RecreateDeploymentStrategyType || env(d).Value != "sqlite:/var/lib/fsm-proxy/runs.db" || !mounted || !claimed || *pod.SecurityContext.FSGroup != 65532 {
		t.Errorf("%+v %+v %+v %+v", d.Spec.Strategy, env(d), mounts, pod.SecurityContext)
	}
	d = deployment(least + "store: {secret: database}\n")
	if d.Spec.Strategy.Type != apps.RecreateDeploymentStrategyType || env(d).ValueFrom.SecretKeyRef.Name != "database" || env(d).ValueFrom.SecretKeyRef.Key != "url" {
		t.Errorf("%+v %+v", d.Spec.Strategy, env(d))
	}
	if d := deployment(least); d.Spec.Strategy.Type == apps.RecreateDeploymentStrategyType || env(d).Name != "" {
		t.Errorf("%+v %+v", d.Spec.Strategy, env(d))
	}
	for values, says := range map[string]string{"store: {claim: a, secret: b}\n": "not both", "store: {claim: a}\nreplicas: 2\n": "one pod has it"} {
		if _, err := helm(t, least+values); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

func TestHelmRenders(t *testing.T) {
	values := maps.Clone(values)
	values["playwright"] = string(readFile(t, "helm", "playwright.yaml"))
	for name, given := range values {
		t.Run(name, func(t *testing.T) {
			rendered, err := helm(t, given)
			if err != nil {
				t.Fatal(err)
			}
			all := objects(t, rendered)
			d := the[*apps.Deployment](t, all)
			checkPod(t, d.Spec.Template)
			checkNoServiceLinks(t, d.Spec.Template.Spec)
			checkServices(t, all)
			checkMounted(t, all, d.Spec.Template.Spec, "mine", "ours")
			for _, p := range every[*networking.NetworkPolicy](all) {
				if p.Spec.PodSelector.MatchLabels["app.kubernetes.io/instance"] != d.Spec.Template.Labels["app.kubernetes.io/instance"] {
					t.Error("the NetworkPolicy does not select the pods")
				}
			}
		})
	}
}

// checkNoServiceLinks: a Service named fsm-proxy makes variables FSM_PROXY_… in every pod that has service links.
func checkNoServiceLinks(t *testing.T, pod core.PodSpec) {
	t.Helper()
	if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		t.Error("the pod has service links")
	}
}

// checkServices: clients come to the Service of the release, and metrics are to be had within the cluster.
func checkServices(t *testing.T, all []runtime.Object) {
	t.Helper()
	services := every[*core.Service](all)
	peers := slices.DeleteFunc(slices.Clone(services), func(s *core.Service) bool { return !headless(s) })
	checkService(t, services[0], len(peers) > 0)
	for _, s := range services {
		if headless(s) {
			continue
		}
		health := slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return p.Name == "fsm-health" })
		if health != (s.Spec.Type == core.ServiceTypeClusterIP) || health != (s.Labels["fsm-proxy.dev/metrics"] == "true") {
			t.Errorf("%s, of type %s: it has the health port: %v, and the label of it: %v", s.Name, s.Spec.Type, health, s.Labels)
		}
	}
}

// checkMounted: every ConfigMap that the pod mounts is rendered, or is one of the user's own.
func checkMounted(t *testing.T, all []runtime.Object, pod core.PodSpec, own ...string) {
	t.Helper()
	there := map[string]bool{}
	for _, name := range own {
		there[name] = true
	}
	for _, m := range every[*core.ConfigMap](all) {
		there[m.Name] = true
	}
	for _, v := range pod.Volumes {
		if v.ConfigMap != nil && !there[v.ConfigMap.Name] {
			t.Errorf("ConfigMap %s is mounted and not there", v.ConfigMap.Name)
		}
	}
}

// What cannot be meant is an error, and says what to do.
func TestHelmRefuses(t *testing.T) {
	for values, says := range map[string]string{
		"policy: {configMap: mine}": "server/image",
		"server: {image: a}":        "policy: give one of policy.content, policy.text and policy.configMap; there is none",
		"server: {image: a}\npolicy: {configMap: mine, text: 'version: 1'}":                          "there is policy.text and policy.configMap",
		"server: {image: a, port: 8080}\npolicy: {configMap: mine}":                                  "server/port",
		"server: {image: a, prot: 1}\npolicy: {configMap: mine}":                                     "prot",
		"server: {image: a}\npolicy: {configMap: mine}\nend: {drain: 30}":                            "sleep must be 7 above drain",
		"server: {image: a}\npolicy: {configMap: mine}\nend: {grace: 35}":                            "grace above sleep",
		"server: {image: a}\npolicy: {configMap: mine}\nproxy: {args: [\"--log-level\", \"debug\"]}": "proxy/args/1",
		"server: {image: a}\npolicy: {configMap: mine}\nconfig: {content: {mood: shadow}}":           "mood",
		"server: {image: a, livenessProbe: {httpGet: {host: 127.0.0.1}}}\npolicy: {configMap: mine}": "server/livenessProbe/httpGet/host",
		"server: {image: a}\npolicy: {configMap: mine}\nhttpRoute: {enabled: true}":                  "httpRoute/parentRefs",
		"server: {image: a}\npolicy: {configMap: mine}\npodDisruptionBudget: {maxUnavailable: all}":  "podDisruptionBudget/maxUnavailable",
		"server: {image: a}\npolicy: {configMap: mine}\nstore: {peerPort: 9902}":                     "store/secret",
		"server: {image: a}\npolicy: {configMap: mine}\nstore: {claim: runs, peerPort: 9902}":        "store/secret",
		"server: {image: a}\npolicy: {configMap: mine}\nstore: {secret: s, peerPort: 8080}":          "store/peerPort",
		"server: {image: a}\npolicy: {configMap: mine}\nstore: {secret: s, peerPort: 3001}":          "peerPort 3001 is the server's own port",
		"server: {image: a}\npolicy: {configMap: mine}\nstore: {secret: s}\nreplicas: 2":             "many with store.peerPort",
	} {
		if _, err := helm(t, values); err == nil {
			t.Errorf("%s: no error", values)
		} else if !strings.Contains(err.Error(), says) {
			t.Errorf("%s: the error does not say %q: %v", values, says, err)
		}
	}
}

func TestHelmLint(t *testing.T) {
	for name, given := range values {
		read, err := chartutil.ReadValues([]byte(given))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range lint.All(chart, read, "default", true).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// The chart makes the pod that the Kustomize component makes.
func TestHelmDoesWhatTheComponentDoes(t *testing.T) {
	rendered, err := helm(t, `
server:
  image: mcr.microsoft.com/playwright/mcp:v0.0.83
  args: [--host, 127.0.0.1, --port, "8931", --isolated]
  port: 8931
  resources:
    requests: {cpu: 250m, memory: 512Mi}
    limits: {memory: 2Gi}
policy: {configMap: fsm-proxy-policy}
config: {configMap: fsm-proxy-config}
replicas: 2
`)
	if err != nil {
		t.Fatal(err)
	}
	component := the[*apps.Deployment](t, objects(t, kustomize(t, "kustomize", "example")))
	chart := the[*apps.Deployment](t, objects(t, rendered))
	chart.Spec.Template.Spec.Containers[0].Name = component.Spec.Template.Spec.Containers[0].Name
	samePod(t, component.Spec.Template, chart.Spec.Template)
}
