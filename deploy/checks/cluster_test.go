package checks

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
	internalcore "k8s.io/kubernetes/pkg/apis/core"
)

// cluster is a fake one that serves Kubernetes' own OpenAPI description, which applying a patch needs.
type cluster struct {
	*fake.Clientset
	description openapi.Client
}

func (c cluster) Discovery() discovery.DiscoveryInterfaces {
	return described{c.Clientset.Discovery(), c.description}
}

type described struct {
	discovery.DiscoveryInterfaces
	description openapi.Client
}

func (d described) OpenAPIV3() openapi.Client { return d.description }

// description is what the API server of the Kubernetes release in go.mod says of its kinds.
func description(t *testing.T) openapi.Client {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatalf("finding the sources of Kubernetes: %v", err)
	}
	return openapitest.NewFileClient(filepath.Join(strings.TrimSpace(string(out)), "api", "openapi-spec", "v3"))
}

// admissionPlugin is the API server's own, with deploy/admission in force.
func admissionPlugin(t *testing.T) *mutating.Plugin {
	t.Helper()
	namespace := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	client := cluster{fake.NewClientset(append(objects(t, kustomize(t, "admission")), namespace)...), description(t)}
	plugin, err := mutating.NewPlugin(nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	factory := informers.NewSharedInformerFactory(client, 0)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{core.SchemeGroupVersion})
	mapper.Add(core.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	plugin.SetEnabled(true)
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetRESTMapper(mapper)
	plugin.SetDynamicClient(dynamicfake.NewSimpleDynamicClient(scheme))
	plugin.SetDrainedNotification(ctx.Done())
	plugin.SetUnconditionalAuthorizer(authorizerfactory.NewAlwaysDenyAuthorizer())
	if err := plugin.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return plugin
}

// create is what becomes of a pod that somebody creates: it gets its defaults, goes through admission and, as the API
// server does it where admission changed something, once more, and is validated. The second time must change nothing.
func create(t *testing.T, plugin *mutating.Plugin, pod *core.Pod) (*core.Pod, error) {
	t.Helper()
	pod = pod.DeepCopy()
	pod.Namespace = "default"
	scheme.Default(pod)
	stored := internal(t, pod).(*internalcore.Pod)
	again := &reinvocation{}
	if err := admitOnce(plugin, stored, again); err != nil {
		return nil, err
	}
	if first := stored.DeepCopy(); again.asked {
		again.is = true
		if err := admitOnce(plugin, stored, again); err != nil {
			return nil, err
		}
		if !equality.Semantic.DeepEqual(first, stored) {
			t.Errorf("run again the policy changes the pod again: %s", diff.Diff(first, stored))
		}
	}
	out := &core.Pod{}
	if err := scheme.Convert(stored, out, nil); err != nil {
		t.Fatal(err)
	}
	out.SetGroupVersionKind(core.SchemeGroupVersion.WithKind("Pod"))
	for _, fault := range validate(t, out) {
		t.Errorf("the pod that comes out: %v", fault)
	}
	return out, nil
}

// admitOnce waits for the plugin to have read the cluster's description of pods, which it does in its own time.
func admitOnce(plugin *mutating.Plugin, pod *internalcore.Pod, again *reinvocation) (err error) {
	attributes := admission.NewAttributesRecord(pod, nil, core.SchemeGroupVersion.WithKind("Pod"), "default", pod.Name,
		core.SchemeGroupVersion.WithResource("pods"), "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "somebody"})
	attempt := func(ctx context.Context) (bool, error) {
		err = plugin.Admit(ctx, invocation{attributes, again}, admission.NewObjectInterfacesFromScheme(scheme))
		return !apierrors.IsServiceUnavailable(err), nil
	}
	if late := wait.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, 30*time.Second, true, attempt); late != nil {
		return late
	}
	return err
}

// invocation is a request that admission has a memory for, as the API server's reinvoker makes it.
type invocation struct {
	admission.Attributes
	context *reinvocation
}

func (i invocation) GetReinvocationContext() admission.ReinvocationContext { return i.context }

// reinvocation is that memory.
type reinvocation struct {
	is, asked bool
	values    map[string]any
}

func (r *reinvocation) IsReinvoke() bool        { return r.is }
func (r *reinvocation) SetIsReinvoke()          { r.is = true }
func (r *reinvocation) ShouldReinvoke() bool    { return r.asked }
func (r *reinvocation) SetShouldReinvoke()      { r.asked = true }
func (r *reinvocation) Value(plugin string) any { return r.values[plugin] }
func (r *reinvocation) SetValue(plugin string, v any) {
	if r.values == nil {
		r.values = map[string]any{}
	}
	r.values[plugin] = v
}

// pod is a pod of one document.
func pod(t *testing.T, manifest string) *core.Pod {
	t.Helper()
	decoded, err := decode([]byte("apiVersion: v1\nkind: Pod\n" + manifest))
	if err != nil {
		t.Fatal(err)
	}
	return the[*core.Pod](t, decoded)
}
