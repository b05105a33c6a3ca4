package cli

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Every line of the "Bad input", and what is like it: one line that says
// what and what to do, and the exit code.
func TestBadInput(t *testing.T) {
	t.Parallel()
	good := write(t, "good.yaml", plainPolicy)
	folder := t.TempDir()
	plain := write(t, "plain.txt", "no program")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	cases := []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"unknown command", []string{"rum"}, 2, []string{`"rum"`, "run"}},
		{"unknown flag", []string{"run", "--polcy", "x"}, 2, []string{"--polcy", "did you mean --policy?"}},
		{"unknown flag like no other", []string{"run", "--bogus"}, 2, []string{"--bogus", "run --help"}},
		{"bad value", []string{"run", "--call-timeout", "5"}, 2, []string{"--call-timeout", `"5"`, "5m"}},
		{"bad size", []string{"run", "--max-message", "4x"}, 2, []string{"--max-message", "MiB"}},
		{"limit of zero", []string{"run", "--policy", good, "--max-in-flight", "0", "--", "cat"}, 2, []string{"--max-in-flight", "more than 0"}},
		{"unknown surface", []string{"run", "--surface", "flat"}, 2, []string{"--surface", "dynamic, static"}},
		{"unknown restart", []string{"run", "--policy", good, "--on-upstream-restart", "x", "--", "cat"}, 2, []string{"keep", "restart"}},
		{"unknown log level", []string{"run", "--policy", good, "--log-level", "loud", "--", "cat"}, 2, []string{"loud", "debug"}},
		{"unknown log format", []string{"run", "--policy", good, "--log-format", "xml", "--", "cat"}, 2, []string{"xml", "json"}},
		{"no policy", []string{"run", "--", "cat"}, 2, []string{"--policy FILE", "fsm-proxy init"}},
		{"no server", []string{"run", "--policy", good}, 2, []string{"--upstream URL", "-- COMMAND"}},
		{"no --", []string{"run", "--policy", good, "npx", "server"}, 2, []string{`"npx"`, "fsm-proxy run --policy " + good + " -- npx server"}},
		{"policy without its flag", []string{"run", good, "--", "cat"}, 2, []string{good, "--policy " + good}},
		{"argument in front of --", []string{"run", "--policy", good, "more", "--", "cat"}, 2, []string{`"more"`, "in front of --"}},
		{"empty --", []string{"run", "--policy", good, "--"}, 2, []string{"-- COMMAND"}},
		{"two servers", []string{"run", "--policy", good, "--upstream", "http://127.0.0.1:1/mcp", "--", "cat"}, 2, []string{"one of them"}},
		{"no URL", []string{"run", "--policy", good, "--upstream", "localhost:8080"}, 2, []string{`"localhost:8080"`, "http://"}},
		{"variable to pass on with a value", []string{"run", "--policy", good, "--pass-env", "TOKEN=s3cret", "--", "cat"}, 2, []string{`--pass-env "TOKEN=…"`, "'--pass-env TOKEN'", "--env"}},
		{"pattern of variables to pass on", []string{"run", "--policy", good, "--pass-env", "AWS_*", "--", "cat"}, 2, []string{`--pass-env "AWS_*"`, "once for each"}},
		{"bad header", []string{"run", "--policy", good, "--upstream", "http://127.0.0.1:1/mcp", "--upstream-header", "secret"}, 2, []string{"'Name: value'"}},
		{"protocol of no server", []string{"check", good, "--upstream-protocol", "modern"}, 2, []string{"--upstream-protocol", "'--upstream URL'"}},
		{"unknown protocol of the server", []string{"run", "--policy", good, "--upstream-protocol", "both", "--", "cat"}, 2, []string{"--upstream-protocol", "auto, legacy, modern"}},
		{"modern protocol over SSE", []string{"run", "--policy", good, "--upstream", "http://127.0.0.1:1/sse", "--upstream-sse", "--upstream-protocol", "modern"}, 2, []string{"--upstream-protocol modern", "--upstream-sse", "leave one of them out"}},
		{"unknown protocol", []string{"run", "--policy", good, "--protocol", "all", "--", "cat"}, 2, []string{"--protocol", "auto, both, legacy, modern"}},
		{"header of two lines", []string{"run", "--policy", good, "--upstream", "http://127.0.0.1:1/mcp", "--upstream-header", "A: b\r\nC: secret"}, 2, []string{"number 1", "line break"}},
		{"header with an odd name", []string{"run", "--policy", good, "--upstream", "http://127.0.0.1:1/mcp", "--upstream-header", "A(b): secret"}, 2, []string{"number 1", "the header's name"}},
		{"header without URL", []string{"run", "--policy", good, "--upstream-header", "A: b", "--", "cat"}, 2, []string{"--upstream URL"}},
		{"bearer without listen", []string{"run", "--policy", good, "--bearer-file", good, "--", "cat"}, 2, []string{"--bearer-file", "--listen"}},
		{"no address", []string{"run", "--policy", good, "--listen", "8080", "--", "cat"}, 2, []string{"127.0.0.1:8080"}},
		{"no path", []string{"run", "--policy", good, "--listen", "127.0.0.1:0", "--path", "mcp", "--", "cat"}, 2, []string{"--path", "/"}},
		{"runs by URL without the key", []string{"run", "--policy", good, "--listen", "127.0.0.1:0", "--path-create", "--", "cat"}, 2, []string{"--path-create", "modern=path or legacy=path to --run-key"}},
		{"runs by URL under another key", []string{"run", "--policy", good, "--listen", "127.0.0.1:0", "--run-key", "modern=process", "--path-create", "--", "cat"}, 2, []string{"--path-create", "--run-key"}},
		{"a run key without its era", []string{"run", "--policy", good, "--listen", "127.0.0.1:0", "--run-key", "principal", "--", "cat"}, 2, []string{`"principal"`, "write legacy=principal"}},
		{"a run key of the modern era without it", []string{"run", "--policy", good, "--listen", "127.0.0.1:0", "--run-key", "handle", "--", "cat"}, 2, []string{"write modern=handle"}},
		{"no run key", []string{"run", "--policy", good, "--listen", "127.0.0.1:0", "--run-key", "user=ann", "--", "cat"}, 2, []string{`"user=ann"`, "write legacy=KEY or modern=KEY"}},
		{"runs that the other era begins anew", []string{"run", "--policy", good, "--listen", "127.0.0.1:0", "--run-key", "legacy=path,modern=handle", "--", "cat"}, 2, []string{"'--run-key legacy=path'", "both eras", "--protocol modern"}},
		{"runs that a URL begins anew", []string{"run", "--policy", good, "--listen", "127.0.0.1:0", "--run-key", "legacy=path,modern=process", "--path-create", "--", "cat"}, 2, []string{"'--run-key modern=process'", "both eras"}},

		{"missing policy", []string{"run", "--policy", "no.yaml", "--", "cat"}, 1, []string{string(filepath.Separator), "no.yaml", "no such file", "fsm-proxy init"}},
		{"policy is a folder", []string{"run", "--policy", folder, "--", "cat"}, 1, []string{folder, "folder"}},
		{"missing policy to check", []string{"check", "no.yaml"}, 1, []string{"no.yaml", "no such file"}},
		{"missing policy to render", []string{"render", "no.yaml"}, 1, []string{"no.yaml", "no such file"}},
		{"no such program", []string{"run", "--policy", good, "--", "no-such-program"}, 1, []string{`"no-such-program"`, "PATH"}},
		{"no such path", []string{"run", "--policy", good, "--", "./no/program"}, 1, []string{string(filepath.Separator) + filepath.Join("no", "program"), "no such file", "give the path"}},
		{"no program", []string{"run", "--policy", good, "--", plain}, 1, []string{plain, "permission denied"}},
		{"no such program under --listen", []string{"run", "--policy", good, "--listen", "127.0.0.1:0", "--", "no-such-program"}, 1, []string{`"no-such-program"`}},
		{"port taken", []string{"run", "--policy", good, "--listen", taken.Addr().String(), "--", "cat"}, 1, []string{taken.Addr().String(), "taken", "choose another"}},
		{"beyond loopback", []string{"run", "--policy", good, "--listen", "0.0.0.0:0", "--", "cat"}, 2, []string{"--bearer-file", "--insecure-listen"}},
		{"beyond loopback, all interfaces", []string{"run", "--policy", good, "--listen", ":0", "--", "cat"}, 2, []string{"--bearer-file", "--insecure-listen"}},
		{"missing bearer file", []string{"run", "--policy", good, "--listen", "127.0.0.1:0", "--bearer-file", "no.token", "--", "cat"}, 1, []string{"--bearer-file", "no.token"}},
		{"missing upstream bearer file", []string{"run", "--policy", good, "--upstream", "http://127.0.0.1:1/mcp", "--upstream-bearer-file", "no.token"}, 1, []string{"no.token"}},

		{"check nothing", []string{"check"}, 2, []string{"fsm-proxy check FILE"}},
		{"check format", []string{"check", good, "--format", "xml"}, 2, []string{"xml", "json"}},
		{"check against and nothing new", []string{"check", "--against", good}, 2, []string{"--against OLD NEW"}},
		{"check against and two new", []string{"check", "--against", good, good, good}, 2, []string{"--against OLD NEW"}},
		{"check against nothing", []string{"check", "--against", "", good}, 2, []string{"--against OLD NEW"}},
		{"render nothing", []string{"render"}, 2, []string{"one argument", "FILE"}},
		{"render format", []string{"render", good, "--format", "png"}, 2, []string{"png", "mermaid"}},
		{"init nothing", []string{"init"}, 2, []string{"-- COMMAND"}},
		{"init to nowhere", []string{"init", "-o", filepath.Join(folder, "no", "p.yaml"), "--", mcptest.Proxy(t), "crossroads"}, 1, []string{filepath.Join(folder, "no", "p.yaml"), "-o"}},
		{"init over a file", []string{"init", "-o", good, "--", mcptest.Proxy(t), "crossroads"}, 1, []string{good, "exists", "--force"}},
		{"init from nothing", []string{"init", "--upstream", "http://127.0.0.1:1/mcp"}, 1, []string{"http://127.0.0.1:1/mcp", "refused"}},
		{"demo with an argument", []string{"demo", "twice"}, 2, []string{"[--once]"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := command(t, nil, c.args...)
			if r.code != c.code {
				t.Errorf("exit code %d, want %d", r.code, c.code)
			}
			if r.stdout != "" {
				t.Errorf("standard output has %q", r.stdout)
			}
			oneLine(t, r.stderr, c.says...)
		})
	}
}

// A policy with errors is refused with all of them, each with its place.
func TestBadPolicy(t *testing.T) {
	t.Parallel()
	bad := write(t, "bad.yaml", "version: 1\ninitial: opne\nstates:\n  open:\n    tols:\n      work:\n")
	for _, args := range [][]string{{"check", bad}, {"run", "--policy", bad, "--", "cat"}, {"render", bad}} {
		r := command(t, nil, args...)
		if r.code != 1 {
			t.Errorf("%s: exit code %d, want 1", args[0], r.code)
		}
		for _, want := range []string{bad + ":2:10: error: ", bad + ":5:5: error: ", "did you mean"} {
			contains(t, r.stdout+r.stderr, want)
		}
	}
}

// A command line that is wrong is exit code 2 with every command: a flag that it
// does not have, a value that a flag does not take, one argument too many.
func TestWrongCommandLines(t *testing.T) {
	good := write(t, "good.yaml", plainPolicy)
	whole := map[string][]string{ // the least that a command wants
		"run": {"--policy", good, "--", "cat"}, "check": {good}, "render": {good}, "explain": {good, "x"}, "init": {"--", "cat"}, "lock": {good, "--", "cat"},
		"admin": {"--admin", "127.0.0.1:1", "/v1/runs"}, "man": {t.TempDir()}, "completion": {"bash"}, "drain": {"--pid", "4194304"},
	}
	more := map[string][]string{
		"run": {"more", "--policy", good, "--", "cat"}, "init": {"more", "--", "cat"}, "lock": {good, "more", "--", "cat"},
		"admin": {"GET", "/v1/runs", "body", "more"}, "check": {"--against", good, good, good}, "test": {"--min-coverage", "101", good}, "explain": {good, "x", "{}", "more"},
	}
	for _, cmd := range newRoot(&console{out: io.Discard, err: io.Discard}).Commands() {
		rest := whole[cmd.Name()]
		wrong := [][]string{append([]string{"--no-such-flag"}, rest...), append([]string{"-%"}, rest...)}
		if args := more[cmd.Name()]; args != nil {
			wrong = append(wrong, args)
		} else {
			wrong = append(wrong, append(slices.Clone(rest), "more"))
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.NoOptDefVal == "" {
				wrong = append(wrong, []string{"--" + f.Name}) // without its value
			}
			if kind := f.Value.Type(); !strings.HasPrefix(kind, "string") || wordsFor(f.Name) != nil || f.Name == "format" {
				wrong = append(wrong, append([]string{"--" + f.Name + "=no such value"}, rest...))
			}
		})
		for _, args := range wrong {
			args = append([]string{cmd.Name()}, args...)
			if r := inProcess(t, args...); r.code != exit.Usage {
				t.Errorf("%q: exit code %d\n%s", args, r.code, r.stderr)
			}
		}
	}
}

// inProcess runs a command line that is expected to be refused before it does
// anything, without a process of its own.
func inProcess(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := &console{args: args, in: strings.NewReader(""), out: &stdout, err: &stderr}
	return result{c.execute(t.Context()), stdout.String(), stderr.String()}
}
