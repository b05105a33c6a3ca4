package checks

import (
	"path/filepath"
	"slices"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// kustomize renders a folder of deploy/ as `kustomize build` does.
func kustomize(t *testing.T, elements ...string) []byte {
	t.Helper()
	return build(t, filesys.MakeFsOnDisk(), filepath.Join(append([]string{deploy}, elements...)...))
}

func build(t *testing.T, files filesys.FileSystem, folder string) []byte {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, folder)
	if err != nil {
		t.Fatal(err)
	}
	out, err := rendered.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestKustomizeExample(t *testing.T) {
	all := objects(t, kustomize(t, "kustomize", "example"))
	checkPod(t, the[*apps.Deployment](t, all).Spec.Template)
	checkNoServiceLinks(t, the[*apps.Deployment](t, all).Spec.Template.Spec)
	checkService(t, the[*core.Service](t, all), false)
	checkMaps(t, all)
}

// With the store's component runs are kept on a volume, which one pod has at a time.
func TestKustomizeStore(t *testing.T) {
	all := exampleWith(t, "store")
	d, claim := the[*apps.Deployment](t, all), the[*core.PersistentVolumeClaim](t, all)
	checkPod(t, d.Spec.Template)
	proxy := d.Spec.Template.Spec.InitContainers[0]
	kept := slices.ContainsFunc(proxy.Env, func(e core.EnvVar) bool {
		return e.Name == "FSM_PROXY_STORE" && e.Value == "sqlite:/var/lib/fsm-proxy/runs.db"
	})
	mounted := slices.ContainsFunc(proxy.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == "/var/lib/fsm-proxy" && !m.ReadOnly })
	claimed := slices.ContainsFunc(d.Spec.Template.Spec.Volumes, func(v core.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
	})
	if d.Spec.Strategy.Type != apps.RecreateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate != nil || !kept || !mounted || !claimed || *d.Spec.Template.Spec.SecurityContext.FSGroup != *proxy.SecurityContext.RunAsGroup {
		t.Errorf("%+v\n%+v\n%+v", d.Spec.Strategy, proxy.Env, proxy.VolumeMounts)
	}
}

// exampleWith is the example with one more component.
func exampleWith(t *testing.T, component string) []runtime.Object {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "overlay")
	from := func(name string) string {
		path, err := filepath.Abs(filepath.Join(deploy, "kustomize", name))
		if err != nil {
			t.Fatal(err)
		}
		if path, err = filepath.Rel(folder, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	disk := filesys.MakeFsOnDisk()
	write(t, disk, filepath.Join(folder, "kustomization.yaml"), "resources: ["+from("example")+"]\ncomponents: ["+from(component)+"]\n")
	return objects(t, build(t, disk, folder))
}

// The policy of the example is the ready one for its server.
func TestExamplePolicyIsTheReadyOne(t *testing.T) {
	if got, want := readFile(t, "kustomize", "example", "policy.yaml"), readFile(t, "..", "policies", "playwright.yaml"); string(got) != string(want) {
		t.Error("kustomize/example/policy.yaml is not policies/playwright.yaml; copy it")
	}
}

// The component leaves alone what is not labelled, and serves any number of Deployments.
func TestKustomizeComponentPatchesWhatIsLabelled(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "overlay")
	component, err := filepath.Abs(filepath.Join(deploy, "kustomize", "sidecar"))
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(folder, component)
	if err != nil {
		t.Fatal(err)
	}
	disk := filesys.MakeFsOnDisk()
	write(t, disk, filepath.Join(folder, "kustomization.yaml"), "resources: [all.yaml]\ncomponents: ["+relative+"]\n")
	write(t, disk, filepath.Join(folder, "all.yaml"), plainDeployment("one", `{fsm-proxy.dev/sidecar: "true"}`)+
		"---\n"+plainDeployment("two", `{fsm-proxy.dev/sidecar: "true"}`)+"---\n"+plainDeployment("other", "{}"))
	all := objects(t, build(t, disk, folder))
	deployments := every[*apps.Deployment](all)
	if len(deployments) != 3 {
		t.Fatalf("%d Deployments of 3", len(deployments))
	}
	for _, d := range deployments {
		if d.Name != "other" {
			checkPod(t, d.Spec.Template)
		} else if len(d.Spec.Template.Spec.InitContainers) != 0 {
			t.Error("a Deployment without the label got a sidecar")
		}
	}
}

func plainDeployment(name, labels string) string {
	return `apiVersion: apps/v1
kind: Deployment
metadata: {name: ` + name + `, labels: ` + labels + `}
spec:
  selector: {matchLabels: {app: ` + name + `}}
  template:
    metadata: {labels: {app: ` + name + `}}
    spec:
      containers:
        - {name: server, image: example.com/server:1}
`
}

func write(t *testing.T, files filesys.FileSystem, path, content string) {
	t.Helper()
	if err := files.MkdirAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := files.WriteFile(path, []byte(content)); err != nil {
		t.Fatal(err)
	}
}
