package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Every flag of run has a key in the configuration file, and every key a flag.
func TestEveryFlagHasAKey(t *testing.T) {
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	new(runFlags).register(flags)
	keys := config.Keys()
	flags.VisitAll(func(f *pflag.Flag) {
		if keys[f.Name] == "" && f.Name != "config" {
			t.Errorf("--%s has no key in the configuration file: add a line to the table in internal/config/keys.go, "+
				"and run go test ./internal/config -update", f.Name)
		}
	})
	for flag, key := range keys {
		if flags.Lookup(flag) == nil {
			t.Errorf("%s in internal/config/keys.go stands for --%s, which there is not", key, flag)
		}
	}
}

// configured writes a configuration file with the policy beside it.
func configured(t *testing.T, text string) string {
	t.Helper()
	path := write(t, "fsm-proxy.yaml", "version: 1\npolicy: p.yaml\n"+text)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "p.yaml"), []byte(plainPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// words is a command as a list in the configuration file.
func words(command []string) string { return fmt.Sprintf("[%s]", quoted(command)) }

func quoted(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(out, ", ")
}

// bound are the flags of run after the command line, the environment and the file.
func bound(t *testing.T, env map[string]string, args ...string) (*runFlags, []string, error) {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	f, cmd := &runFlags{}, &cobra.Command{}
	f.register(cmd.Flags())
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	if err := f.bind(cmd); err != nil {
		return f, nil, err
	}
	front, err := f.take(&console{}, cmd, cmd.Flags().Args())
	if err == nil {
		err = f.check(front)
	}
	return f, f.Server.Command, f.file.locate(err)
}

// The flag wins over the environment, that over the file, and that over what is
// built in; what replaces a group replaces all of it.
func TestPrecedence(t *testing.T) {
	const server = "upstream:\n  command: [cat, -u]\n  env: {A: file}\n"
	const remote = "upstream:\n  url: http://127.0.0.1:1/mcp\n  headers: {A: file}\n  share: true\n"
	for _, c := range []struct {
		name, file string
		env        map[string]string
		args       []string
		got        func(*config.Run) string
		want       string
	}{
		{"built in", server, nil, nil, func(f *config.Run) string { return f.Timeouts.Call.String() }, "5m0s"},
		{"file", server + "timeouts: {call: 1m}\n", nil, nil, func(f *config.Run) string { return f.Timeouts.Call.String() }, "1m0s"},
		{"environment", server + "timeouts: {call: 1m}\n", map[string]string{"FSM_PROXY_CALL_TIMEOUT": "2m"}, nil,
			func(f *config.Run) string { return f.Timeouts.Call.String() }, "2m0s"},
		{"flag", server + "timeouts: {call: 1m}\n", map[string]string{"FSM_PROXY_CALL_TIMEOUT": "2m"}, []string{"--call-timeout", "3m"},
			func(f *config.Run) string { return f.Timeouts.Call.String() }, "3m0s"},
		{"negated key", server + "hint: false\n", nil, nil, func(f *config.Run) string { return fmt.Sprint(f.NoHint) }, "true"},
		{"file's server", server, nil, nil, func(f *config.Run) string { return fmt.Sprint(f.Server.Command, f.Server.Env) }, "[cat -u] [A=file]"},
		{"a list is replaced", server, nil, []string{"--env", "B=flag"}, func(f *config.Run) string { return fmt.Sprint(f.Server.Env) }, "[B=flag]"},
		{"variable for the file's command", "upstream: {command: [cat]}\n", map[string]string{"FSM_PROXY_ENV": "B=variable"}, nil,
			func(f *config.Run) string { return fmt.Sprint(f.Server.Env) }, "[B=variable]"},
		{"variable for the file's URL", remote, map[string]string{"FSM_PROXY_UPSTREAM_HEADER": "A: variable", "FSM_PROXY_ENV": "B=variable"}, nil,
			func(f *config.Run) string { return fmt.Sprint(f.Server.Headers, f.Server.Env) }, "[A: variable] []"},
		{"command for URL", remote, nil, []string{"--", "cat"},
			func(f *config.Run) string {
				return fmt.Sprint(f.Server.Command, f.Server.URL, f.Server.Headers, f.Share)
			}, "[cat][] false"},
		{"URL for command", server, nil, []string{"--upstream", "http://127.0.0.1:2/mcp"},
			func(f *config.Run) string { return fmt.Sprint(f.Server.Command, f.Server.URL, f.Server.Env) }, "[]http://127.0.0.1:2/mcp[]"},
		{"URL of the environment for command", server, map[string]string{"FSM_PROXY_UPSTREAM": "http://127.0.0.1:2/mcp"}, nil,
			func(f *config.Run) string { return fmt.Sprint(f.Server.Command, f.Server.URL, f.Server.Env) }, "[]http://127.0.0.1:2/mcp[]"},
		{"no listening", server + "listen: {address: '127.0.0.1:0', path: /x, insecure: true}\n", nil, []string{"--listen", ""},
			func(f *config.Run) string { return fmt.Sprint(f.Listen.Address, f.Listen.Path, f.Listen.Insecure) }, "/mcpfalse"},
		{"listening elsewhere", server + "listen: {address: '127.0.0.1:0', path: /x}\n", nil, []string{"--listen", "127.0.0.1:1"},
			func(f *config.Run) string { return f.Listen.Address + f.Listen.Path }, "127.0.0.1:1/x"},
		{"variable that belongs to listening", server + "listen: {address: '127.0.0.1:0'}\n", map[string]string{"FSM_PROXY_BEARER_FILE": "t"}, nil,
			func(f *config.Run) string { return f.Listen.BearerFile }, "t"},
		{"a comma in a list", server + "listen: {address: '127.0.0.1:0', allowed_hosts: ['a,b', c]}\n", nil, nil,
			func(f *config.Run) string { return fmt.Sprintf("%q", f.Listen.AllowedHosts) }, `["a,b" "c"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _, err := bound(t, c.env, append([]string{"--config", configured(t, c.file)}, c.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.got(&f.Run); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// Each word of a closed set is one that the flag takes.
func TestConfigWordsAreTheFlags(t *testing.T) {
	for key, texts := range map[string][]string{
		"surface": {"auto", "dynamic", "static"}, "annotate": {"auto", "off", "meta", "text"}, "refusals": {"error", "plain", "opaque"},
		"log: {level": {"trace", "debug", "info", "warn", "error", "off"}, "log: {format": {"text", "json"}, "upstream: {command: [cat], on_restart": {"keep", "restart"},
	} {
		for _, text := range texts {
			line := key + ": " + text
			if strings.Contains(key, "{") {
				line += "}"
			}
			args := []string{"--config", configured(t, line+"\n"), "--", "cat"}
			if strings.HasPrefix(key, "upstream") {
				args = args[:2]
			}
			if _, _, err := bound(t, nil, args...); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
}

// What the file says and the flags' own checks refuse is said of the key, at its
// place, and is no wrong command line.
func TestConfigErrors(t *testing.T) {
	server := "upstream: {command: [cat]}\n"
	for _, c := range []struct {
		name, file string
		args       []string
		code       int
		says       []string
	}{
		{"reading", "polcy: x\nlimits: {message: 4x, depth: 0}\n", nil, 1, []string{":3:1: error: ", ":4:19: error: message:", "MiB", ":4:30: error: "}},
		{"syntax", "listen: {\n", nil, 1, []string{"fsm-proxy.yaml:4:1: error: "}},
		{"missing file", "", []string{"--config", "no.yaml"}, 1, []string{string(filepath.Separator) + "no.yaml", "no such file"}},
		{"no server", "", nil, 2, []string{"no server to wrap"}},
		{"path", server + "listen:\n  address: 127.0.0.1:0\n  path: mcp\n", nil, 1, []string{":6:9: error: listen.path", "does not begin with /"}},
		{"beyond loopback", server + "listen:\n  address: 0.0.0.0:0\n", nil, 1, []string{":5:12: error: listen.address", "listen.bearer_file", "listen.insecure"}},
		{"stray", server + "listen:\n  path: /x\n  insecure: true\n", nil, 1, []string{":6:13: error: listen.insecure belongs to listen.address"}},
		{"no URL", "upstream: {url: 'localhost:1'}\n", nil, 1, []string{":3:17: error: upstream.url", "http://"}},
		{"missing bearer file", server + "listen: {address: '127.0.0.1:0', bearer_file: no.token}\n", nil, 1, []string{":4:47: error: ", "listen.bearer_file", "no.token"}},
		{"a limit of no time", server + "limits: {session_idle: 0s}\n", nil, 1, []string{":4:24: error: limits.session_idle 0s must be more than 0"}},
		{"runs that the other era begins anew", server + "listen: {address: \"127.0.0.1:0\"}\nruns: {key: [legacy=path, modern=handle]}\n", nil, 1,
			[]string{":5:13: error: runs.key legacy=path,modern=handle:", "write 'runs.key: [legacy=path]', which holds for both eras", "'protocol: legacy'"}},
		{"runs by URL without the key", server + "runs: {path_create: true}\n", nil, 1, []string{":4:21: error: runs.path_create", "modern=path or legacy=path to runs.key"}},
		{"the flag's own error", server, []string{"--max-in-flight", "0"}, 2, []string{"fsm-proxy: --max-in-flight 0"}},
		{"missing policy", server, []string{"--policy", "no.yaml"}, 1, []string{"reading policy ", "no.yaml"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := command(t, nil, append([]string{"run", "--config", configured(t, c.file)}, c.args...)...)
			if r.code != c.code {
				t.Errorf("exit code %d, want %d", r.code, c.code)
			}
			for _, word := range c.says {
				contains(t, r.stderr, word)
			}
		})
	}
}

// The file alone is enough to start, and a check of it finds the policy.
func TestConfigAlone(t *testing.T) {
	u := mcptest.Stdio(t, "quiet")
	address := mcptest.FreeAddress(t)
	path := configured(t, "listen: {address: '"+address+"', bearer_file: token}\nupstream: {command: "+words(u.Command())+"}\nlog: {format: json}\n")
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "token"), []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := command(t, nil, "check", "--config", path)
	if r.code != 0 || !strings.Contains(r.stdout, path+": ok, 5 keys\n") || !strings.Contains(r.stdout, "p.yaml: ok, 1 state\n") {
		t.Errorf("check: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	p := mcptest.Start(t, nil, mcptest.Proxy(t), "run", "--config", path)
	p.AwaitListening(address)
	url := "http://" + address + "/mcp"
	if code := post(t, url, "s3cret"); code != http.StatusOK {
		t.Errorf("HTTP %d", code)
	}
	if code := post(t, url, ""); code != http.StatusUnauthorized {
		t.Errorf("without the token: HTTP %d", code)
	}
}

func TestCheckConfigFindsAll(t *testing.T) {
	path := configured(t, "listen: {address: '0.0.0.0:0'}\nupstream: {url: x}\n")
	r := command(t, nil, "check", "--config", path)
	if r.code != 1 {
		t.Errorf("exit code %d", r.code)
	}
	contains(t, r.stdout, ":4:17: error: upstream.url")
	contains(t, r.stdout, "p.yaml: ok, 1 state")
	if r := command(t, nil, "check", "--config", path, "--format", "json"); !strings.Contains(r.stdout, `"line": 4`) {
		t.Errorf("as JSON: %s", r.stdout)
	}
	if r := command(t, nil, "check", "--config", path, "--against", path, path); r.code != 2 {
		t.Errorf("--against: exit code %d", r.code)
	}
}

func TestSchemaOfWhat(t *testing.T) {
	want, err := os.ReadFile(filepath.Join(mcptest.Root(), "internal", "config", "config.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if r := command(t, nil, "schema", "config"); r.stdout != string(want) {
		t.Error("schema config prints something else than internal/config/config.schema.json")
	}
	if command(t, nil, "schema", "policy").stdout != command(t, nil, "schema").stdout {
		t.Error("schema and schema policy differ")
	}
	r := command(t, nil, "schema", "confg")
	oneLine(t, r.stderr, "schema config")
	if r.code != 2 {
		t.Errorf("exit code %d", r.code)
	}
}

// --path-create, which belongs to a key, is refused without it from wherever it comes.
func TestPathCreateNeedsItsKey(t *testing.T) {
	file := configured(t, "upstream: {command: [cat]}\nlisten: {address: '127.0.0.1:0'}\n")
	env := map[string]string{"FSM_PROXY_PATH_CREATE": "true"}
	if _, _, err := bound(t, env, "--config", file); err == nil || !strings.Contains(err.Error(), "--path-create begins runs by their URL") {
		t.Errorf("without the key: %v", err)
	}
	for _, keys := range []string{"modern=path", "legacy=path", "legacy=path,modern=path"} {
		if _, _, err := bound(t, env, "--config", file, "--run-key", keys); err != nil {
			t.Errorf("with %s: %v", keys, err)
		}
	}
	if _, _, err := bound(t, nil, "--config", file, "--path-create=false"); err != nil {
		t.Errorf("where it is off: %v", err)
	}
}
