//go:build unix

package process

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestEnviron(t *testing.T) {
	env := []string{"PATH=/bin", "HOME=/h", "LC_ALL=C", "AWS_SECRET_ACCESS_KEY=s", "FSM_PROXY_BEARER=b", "EXTRA=1", "TZ=UTC"}
	for name, tc := range map[string]struct {
		stdio     bool
		pass, set []string
		want      string
		withheld  string
	}{
		"stdio":           {true, nil, nil, "PATH=/bin HOME=/h LC_ALL=C AWS_SECRET_ACCESS_KEY=s EXTRA=1 TZ=UTC", ""},
		"stdio and set":   {true, nil, []string{"EXTRA=2"}, "PATH=/bin HOME=/h LC_ALL=C AWS_SECRET_ACCESS_KEY=s TZ=UTC EXTRA=2", ""},
		"stdio and pass":  {true, []string{"FSM_PROXY_BEARER"}, nil, "PATH=/bin HOME=/h LC_ALL=C AWS_SECRET_ACCESS_KEY=s FSM_PROXY_BEARER=b EXTRA=1 TZ=UTC", ""},
		"listen":          {false, nil, nil, "PATH=/bin HOME=/h LC_ALL=C TZ=UTC", "AWS_SECRET_ACCESS_KEY EXTRA"},
		"listen and pass": {false, []string{"EXTRA"}, []string{"A=b=c"}, "PATH=/bin HOME=/h LC_ALL=C EXTRA=1 TZ=UTC A=b=c", "AWS_SECRET_ACCESS_KEY"},
		"listen and set":  {false, nil, []string{"EXTRA=2", "PATH=/x"}, "HOME=/h LC_ALL=C TZ=UTC EXTRA=2 PATH=/x", "AWS_SECRET_ACCESS_KEY"},
	} {
		got := Environ(tc.stdio, env, tc.pass, tc.set)
		if text := strings.Join(got.Variables, " "); text != tc.want {
			t.Errorf("%s: %s", name, text)
		}
		if text := strings.Join(got.Withheld, " "); text != tc.withheld {
			t.Errorf("%s: withheld are %s", name, text)
		}
	}
}

// How the network is reached a child is told, but no password of a proxy.
func TestEnvironOfTheNetwork(t *testing.T) {
	env := []string{
		"HTTP_PROXY=http://proxy.lan:3128", "https_proxy=http://ann:s3cret@proxy.lan:3128", "ALL_PROXY=ann:s3cret@proxy.lan",
		"no_proxy=localhost,.lan", "SSL_CERT_FILE=/ca.pem", "NODE_EXTRA_CA_CERTS=/ca.pem", "npm_config_cafile=/ca.pem", "PIP_CERT=/ca.pem",
	}
	got := Environ(false, env, nil, nil)
	want := []string{env[0], env[3], env[4], env[5], env[6], env[7]}
	if !slices.Equal(got.Variables, want) {
		t.Errorf("got %q", got.Variables)
	}
	if !slices.Equal(got.Passwords, []string{"ALL_PROXY", "https_proxy"}) || got.Withheld != nil {
		t.Errorf("passwords %q, withheld %q", got.Passwords, got.Withheld)
	}
	got = Environ(false, env, []string{"https_proxy"}, []string{"ALL_PROXY=http://proxy.lan"})
	if !slices.Contains(got.Variables, env[1]) || got.Passwords != nil {
		t.Errorf("named, and set: %q, withheld %q", got.Variables, got.Passwords)
	}
}

// What is withheld is named, likely secrets first, and only what somebody could
// have meant for the child.
func TestEnvironNamesWhatIsWithheld(t *testing.T) {
	env := []string{
		"FSM_PROXY_BEARER=b", "fsm_proxy_x=b", "KUBERNETES_SERVICE_HOST=10.0.0.1", "KUBERNETES_SERVICE_PORT_HTTPS=443", "KUBERNETES_PORT=tcp://10.0.0.1:443",
		"REDIS_PORT_6379_TCP=tcp://10.0.0.2:6379", "REDIS_PORT_6379_TCP_ADDR=10.0.0.2", "BASH_FUNC_x%%=() { :; }", "\x1b[2J=x", "PWD=/", "_=/bin/env", "NOTHING",
		"DB_PORT=5432", "EDITOR=vi", "DATABASE_URL=postgres://me:s3cret@db/x", "GITHUB_TOKEN=s3cret", "MONKEY=1", "OPENAI_API_KEY=s3cret", "SSH_AUTH_SOCK=/x",
	}
	got := Environ(false, env, nil, nil)
	want := "DATABASE_URL GITHUB_TOKEN OPENAI_API_KEY SSH_AUTH_SOCK DB_PORT EDITOR MONKEY NOTHING"
	if text := strings.Join(got.Withheld, " "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	for i := range 1000 {
		env = append(env, fmt.Sprintf("V%d=s3cret", i))
	}
	if got = Environ(false, env, nil, nil); len(got.Withheld) != 1008 || got.Withheld[3] != "SSH_AUTH_SOCK" {
		t.Errorf("of many: %d, first %q", len(got.Withheld), got.Withheld[:4])
	}
}
