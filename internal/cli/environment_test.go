package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/process"
)

// A variable that stands for no flag is an error of every command, with the name
// that was perhaps meant and without its value.
func TestUnknownVariables(t *testing.T) {
	path := write(t, "p.yaml", plainPolicy)
	for variable, says := range map[string]string{
		"FSM_PROXY_LOGLEVEL":          "FSM_PROXY_LOGLEVEL (did you mean FSM_PROXY_LOG_LEVEL?)",
		"FSM_PROXY_BEARER_FIEL":       "(did you mean FSM_PROXY_BEARER_FILE?)",
		"FSM_PROXY_LISTEN_ADDRESS":    "(did you mean FSM_PROXY_LISTEN?)",
		"FSM_PROXY_MAX_SESSIONS_EVER": "(did you mean FSM_PROXY_MAX_SESSIONS?)",
		"FSM_PROXY_PORT":              "FSM_PROXY_PORT; unset it",
		"FSM_PROXY_HELP":              "FSM_PROXY_HELP",
		"FSM_PROXY_":                  "FSM_PROXY_",
		"FSM_PROXY_A\x1b[31m\n::b":    `FSM_PROXY_A\u001b[31m ::b`,
	} {
		r := command(t, []string{variable + "=s3cret"}, "check", path)
		if r.code != exit.Usage || strings.Contains(r.stderr, "s3cret") {
			t.Errorf("%s: exit code %d\n%s", variable, r.code, r.stderr)
		}
		oneLine(t, r.stderr, says)
	}
	for _, line := range []string{"run --policy " + path, "check", "render " + path, "init", "lock " + path, "demo --once", "schema", "drain", "admin /v1/runs", "version", "man ."} {
		if r := command(t, []string{"FSM_PROXY_NONE=x"}, strings.Fields(line)...); r.code != exit.Usage || !strings.Contains(r.stderr, "FSM_PROXY_NONE") {
			t.Errorf("%s: exit code %d\n%s", line, r.code, r.stderr)
		}
	}
}

// Empty variables, those of other commands' flags, and what Kubernetes sets for a
// Service named fsm-proxy, or fsm-proxy-listen, are no errors. Neither is anything
// to a shell that asks for completions.
func TestVariablesThatAreNone(t *testing.T) {
	path := write(t, "p.yaml", plainPolicy)
	for _, variable := range []string{
		"FSM_PROXY_NONE=", "FSM_PROXY_LISTEN=127.0.0.1:0", "FSM_PROXY_PID=2", "FSM_PROXY_STATE=open", "FSM_PROXYX=1",
		"FSM_PROXY_SERVICE_HOST=10.0.0.1", "FSM_PROXY_SERVICE_PORT=80", "FSM_PROXY_SERVICE_PORT_HTTP=80",
		"FSM_PROXY_PORT=tcp://10.0.0.1:80", "FSM_PROXY_PORT_80_TCP=tcp://10.0.0.1:80", "FSM_PROXY_PORT_80_TCP_PROTO=tcp",
		"FSM_PROXY_PORT_80_TCP_PORT=80", "FSM_PROXY_PORT_80_TCP_ADDR=10.0.0.1", "FSM_PROXY_PORT_53_UDP_ADDR=10.0.0.1",
		"FSM_PROXY_LISTEN_SERVICE_HOST=10.0.0.1", "FSM_PROXY_LISTEN_PORT=tcp://10.0.0.1:80", "FSM_PROXY_LISTEN_PORT_80_TCP_PORT=80",
	} {
		if r := command(t, []string{variable}, "check", path); r.code != exit.OK {
			t.Errorf("%s: exit code %d\n%s", variable, r.code, r.stderr)
		}
	}
	for _, line := range []string{"completion bash", "__complete run --mo", "help run"} {
		if r := command(t, []string{"FSM_PROXY_NONE=x"}, strings.Fields(line)...); r.code != exit.OK {
			t.Errorf("%s: exit code %d\n%s", line, r.code, r.stderr)
		}
	}
}

// No flag's variable looks like one of Kubernetes': it would be shadowed by it.
func TestNoFlagIsAServiceLink(t *testing.T) {
	for _, cmd := range newRoot(&console{out: io.Discard, err: io.Discard}).Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if process.IsServiceLink(variableOf(f.Name), "tcp://10.0.0.1:80") {
				t.Errorf("--%s of %s has the variable %s, which Kubernetes sets for a Service", f.Name, cmd.Name(), variableOf(f.Name))
			}
		})
	}
}
