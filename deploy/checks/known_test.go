package checks

import (
	"regexp"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

// serviceVariable are the variables that the kubelet sets for each Service of the namespace.
var serviceVariable = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP)\w*)?)$`)

// Every argument and variable of the sidecar is known to the program itself, in each way of adding it.
func TestArgumentsAreKnown(t *testing.T) {
	fsmProxy := program(t)
	help := run(t, nil, fsmProxy, "run", "--help")
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-z-]+)`).FindAllStringSubmatch(help, -1) {
		known[m[1]] = true
		known[variable(m[1])] = true
	}
	for name := range known {
		if serviceVariable.MatchString(name) {
			t.Errorf("a Service called fsm-proxy sets %s, and with it a flag", name)
		}
	}
	for where, c := range sidecars(t) {
		if len(c.Args) == 0 || c.Args[0] != "run" || len(c.Command) > 0 {
			t.Errorf("%s: it does not run: %v %v", where, c.Command, c.Args)
			continue
		}
		for _, a := range c.Args[1:] {
			if name, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "="); !known[name] {
				t.Errorf("%s: fsm-proxy run has no --%s", where, name)
			}
		}
		for _, e := range c.Env {
			if !known[e.Name] && e.Name != podIP {
				t.Errorf("%s: no flag of fsm-proxy run has the variable %s", where, e.Name)
			}
		}
	}
	for _, command := range []string{"drain", "admin"} {
		if usage := run(t, nil, fsmProxy, command, "--help"); !strings.Contains(usage, "fsm-proxy "+command) {
			t.Errorf("there is no fsm-proxy %s", command)
		}
	}
}

// sidecars are the containers of all ways, with all that can be chosen.
func sidecars(t *testing.T) map[string]core.Container {
	t.Helper()
	found := map[string]core.Container{
		"kustomize": sidecar(t, the[*apps.Deployment](t, objects(t, kustomize(t, "kustomize", "example"))).Spec.Template.Spec),
	}
	found["kustomize, replicas"] = sidecar(t, the[*apps.Deployment](t, exampleWith(t, "replicas")).Spec.Template.Spec)
	for name, given := range values {
		rendered, err := helm(t, given)
		if err != nil {
			t.Fatal(err)
		}
		found["helm, "+name] = sidecar(t, the[*apps.Deployment](t, objects(t, rendered)).Spec.Template.Spec)
	}
	plugin := admissionPlugin(t)
	for name, more := range map[string]string{"": "", "insecure": "\n    fsm-proxy.dev/insecure-listen: \"true\"\n    fsm-proxy.dev/config: c"} {
		manifest := strings.Replace(labelled, `{fsm-proxy.dev/upstream-port: "8931"}`, "\n    fsm-proxy.dev/upstream-port: \"8931\""+more, 1)
		injected, err := create(t, plugin, pod(t, manifest+"spec: {containers: [{name: server, image: example.com/server:1}]}"))
		if err != nil {
			t.Fatal(err)
		}
		found["admission "+name] = sidecar(t, injected.Spec)
	}
	return found
}
