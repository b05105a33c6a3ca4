package checks

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	disruption "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	internaladmission "k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	admissionvalidation "k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	internalapps "k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	internalcore "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	internalnetworking "k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	internaldisruption "k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	disruptionvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// deploy is the folder that is checked.
var deploy = filepath.Join("..")

func readFile(t *testing.T, elements ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{deploy}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// scheme knows every kind that deploy/ uses, and their defaults.
var scheme = func() *runtime.Scheme {
	s := legacyscheme.Scheme
	for _, add := range []func(*runtime.Scheme) error{monitoring.AddToScheme, gateway.Install} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// decode reads a stream of YAML documents as the API server does with strict field validation: an unknown field and a
// duplicate one are errors.
func decode(stream []byte) (objects []runtime.Object, err error) {
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("decoding: %w in\n%s", err, document)
		}
		objects = append(objects, object)
	}
}

// objects decodes, defaults and validates rendered output.
func objects(t *testing.T, stream []byte) []runtime.Object {
	t.Helper()
	decoded, err := decode(stream)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range decoded {
		scheme.Default(object)
		for _, fault := range validate(t, object) {
			t.Errorf("%s: %v", object.GetObjectKind().GroupVersionKind().Kind, fault)
		}
	}
	return decoded
}

// validate asks the API server's own validation. The namespace is set where one is needed, as kubectl does it.
func validate(t *testing.T, object runtime.Object) field.ErrorList {
	t.Helper()
	switch o := internal(t, object).(type) {
	case *internalapps.Deployment:
		o.Namespace = "default"
		return appsvalidation.ValidateDeployment(o, corevalidation.PodValidationOptions{})
	case *internalcore.Pod:
		return corevalidation.ValidatePodCreate(o, corevalidation.PodValidationOptions{})
	case *internalcore.Service:
		o.Namespace = "default"
		if o.Spec.ClusterIP != "" {
			o.Spec.ClusterIPs = []string{o.Spec.ClusterIP} // the API server does so when it stores one
		}
		return corevalidation.ValidateServiceCreate(o)
	case *internalcore.ConfigMap:
		o.Namespace = "default"
		return corevalidation.ValidateConfigMap(o)
	case *internalcore.PersistentVolumeClaim:
		o.Namespace = "default"
		return corevalidation.ValidatePersistentVolumeClaim(o, corevalidation.ValidationOptionsForPersistentVolumeClaimCreate())
	case *internalnetworking.NetworkPolicy:
		o.Namespace = "default"
		return networkingvalidation.ValidateNetworkPolicy(o, networkingvalidation.NetworkPolicyValidationOptions{})
	case *internaladmission.MutatingAdmissionPolicy:
		return admissionvalidation.ValidateMutatingAdmissionPolicy(o)
	case *internaladmission.MutatingAdmissionPolicyBinding:
		return admissionvalidation.ValidateMutatingAdmissionPolicyBinding(o)
	case *internaldisruption.PodDisruptionBudget:
		return disruptionvalidation.ValidatePodDisruptionBudget(o, disruptionvalidation.PodDisruptionBudgetValidationOptions{})
	case *gateway.HTTPRoute:
		return validateByDefinition(t, o, "gateway.networking.k8s.io_httproutes.yaml")
	case *monitoring.ServiceMonitor, *monitoring.PrometheusRule:
		return nil
	default:
		t.Fatalf("%T: nobody validates it", object)
		return nil
	}
}

// internal is the object as the API server holds it; a kind that is none of Kubernetes' own stays as it is.
func internal(t *testing.T, object runtime.Object) runtime.Object {
	t.Helper()
	switch object.GetObjectKind().GroupVersionKind().Group {
	case monitoring.SchemeGroupVersion.Group, gateway.GroupName:
		return object
	}
	out, err := scheme.ConvertToVersion(object, schema.GroupVersions{
		{Group: apps.GroupName, Version: runtime.APIVersionInternal},
		{Group: core.GroupName, Version: runtime.APIVersionInternal},
		{Group: networking.GroupName, Version: runtime.APIVersionInternal},
		{Group: disruption.GroupName, Version: runtime.APIVersionInternal},
		{Group: admissionregistration.GroupName, Version: runtime.APIVersionInternal},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// the is the one object of a type.
func the[T runtime.Object](t *testing.T, all []runtime.Object) T {
	t.Helper()
	found := every[T](all)
	if len(found) != 1 {
		t.Fatalf("%d objects of %T, and there should be one", len(found), *new(T))
	}
	return found[0]
}

// every is all objects of a type.
func every[T runtime.Object](all []runtime.Object) (found []T) {
	for _, o := range all {
		if typed, ok := o.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}
