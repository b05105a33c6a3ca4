package checks

import (
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// A server that may run in a namespace with the strictest Pod Security Standard may do so with the sidecar.
func TestSidecarIsRestricted(t *testing.T) {
	injected, err := create(t, admissionPlugin(t), pod(t, labelled+`
spec:
  containers:
    - name: server
      image: example.com/server:1
      securityContext:
        runAsNonRoot: true
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
        seccompProfile: {type: RuntimeDefault}
`))
	if err != nil {
		t.Fatal(err)
	}
	checkRestricted(t, template(injected))
}

// checkRestricted asks the strictest Pod Security Standard.
func checkRestricted(t *testing.T, pod core.PodTemplateSpec) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	strictest := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for _, result := range evaluator.EvaluatePod(strictest, &pod.ObjectMeta, &pod.Spec) {
		if !result.Allowed {
			t.Errorf("%s: %s", result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
}
