package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// What an era routes, and what an upstream may ask, no policy lets pass by.
func TestNoPolicyPassesRoutedMethods(t *testing.T) {
	const text = "version: 1\ninitial: a\nstates: {a: {tools: [x]}}\npassthrough: [%q]\n"
	all := []string{"sampling/createMessage", "elicitation/create", "roots/list"}
	for _, routes := range allRoutes().of {
		for method := range routes {
			all = append(all, method)
		}
	}
	for _, method := range all {
		if _, findings := policy.Parse("policy.yaml", fmt.Appendf(nil, text, method)); !strings.Contains(fmt.Sprint(findings), "cannot be let past") {
			t.Errorf("%s: %v", method, findings)
		}
	}
}
