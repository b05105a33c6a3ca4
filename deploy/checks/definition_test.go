package checks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	definitions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// validateByDefinition asks what the API server asks of a custom resource: the schema and the CEL rules of its definition,
// which the Gateway API publishes in its module.
func validateByDefinition(t *testing.T, object runtime.Object, file string) field.ErrorList {
	t.Helper()
	props := definition(t, file, object.GetObjectKind().GroupVersionKind().Version)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	delete(content, "status") // the Go type has one that is empty
	structural, err := schema.NewStructural(props)
	if err != nil {
		t.Fatal(err)
	}
	defaulting.Default(content, structural)
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		t.Fatal(err)
	}
	faults := validation.ValidateCustomResource(nil, content, validator)
	rules, _ := cel.NewValidator(structural, true, celconfig.PerCallLimit).
		Validate(t.Context(), nil, structural, content, nil, celconfig.RuntimeCELCostBudget)
	return append(faults, rules...)
}

// definition is the schema of one version, from a file of the Gateway API's standard channel.
func definition(t *testing.T, file, version string) *apiextensions.JSONSchemaProps {
	t.Helper()
	module := strings.TrimSpace(runIn(t, ".", nil, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api"))
	text, err := os.ReadFile(filepath.Join(module, "config", "crd", "standard", file))
	if err != nil {
		t.Fatal(err)
	}
	var published definitions.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &published); err != nil {
		t.Fatal(err)
	}
	for _, v := range published.Spec.Versions {
		if v.Name != version {
			continue
		}
		var props apiextensions.JSONSchemaProps
		if err := definitions.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &props, nil); err != nil {
			t.Fatal(err)
		}
		return &props
	}
	t.Fatalf("%s has no version %s", file, version)
	return nil
}
