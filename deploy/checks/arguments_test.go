package checks

import (
	"net"
	"strconv"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

// flag is the value of a flag of the sidecar, from its arguments or its environment.
func flag(c core.Container, name string) string {
	for _, a := range c.Args {
		if key, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "="); key == name {
			return value
		}
	}
	for _, e := range c.Env {
		if e.Name == variable(name) {
			return e.Value
		}
	}
	return ""
}

// variable is the environment variable of a flag.
func variable(name string) string {
	return "FSM_PROXY_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }
