package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
)

// A forgotten -- in front of the server's command is said, with the line that was
// meant; secrets in it are not repeated.
func TestForgottenDash(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"npx", "uvx"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	work := t.TempDir()
	if err := os.WriteFile(filepath.Join(work, "p.yaml"), []byte(plainPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	const says = "; put -- in front of the server's command: "
	for line, want := range map[string]string{
		"run --policy p.yaml npx -y server":                  "unknown shorthand flag: 'y' in -y" + says + "fsm-proxy run --policy p.yaml -- npx -y server",
		"run --policy p.yaml npx server":                     `unexpected argument "npx"` + says + "fsm-proxy run --policy p.yaml -- npx server",
		"init -o x.yaml npx -y server /srv":                  "fsm-proxy init -o x.yaml -- npx -y server /srv",
		"init -ox.yaml --force uvx --from pkg":               "unknown flag: --from" + says + "fsm-proxy init -ox.yaml --force -- uvx --from pkg",
		"check p.yaml npx -y server":                         "fsm-proxy check p.yaml -- npx -y server",
		"check --strict . npx server":                        "fsm-proxy check --strict . -- npx server",
		"lock p.yaml npx -y server":                          "fsm-proxy lock p.yaml -- npx -y server",
		"lock p.yaml npx server":                             "fsm-proxy lock p.yaml -- npx server",
		"init --env TOKEN=s3cret --env=A=s3cret npx -y":      "fsm-proxy init --env 'TOKEN=…' '--env=A=…' -- npx -y",
		"run --log-level debug --upstream-header A:s3cret n": "fsm-proxy run --log-level debug --upstream-header 'A:…' -- n",
		"run -y":               "unknown shorthand flag: 'y' in -y; see 'fsm-proxy run --help'",
		"check p.yaml --strct": "did you mean --strict?",
		"run p.yaml":           "write '--policy p.yaml'",
		"run --upstream http://127.0.0.1:1/mcp --policy p.yaml x": `unexpected argument "x"; remove it`,
		"run --policy p.yaml http://127.0.0.1:1/s3cret":           "unexpected argument: a URL; write --upstream in front of it",
		"check p.yaml https://127.0.0.1:1/s3cret":                 "unexpected argument: a URL; write --upstream in front of it",
		"run --policy p.yaml -- http://127.0.0.1:1/s3cret":        "after -- stands a URL, and no command; write '--upstream URL' instead",
		"render p.yaml x -y":                                      "see 'fsm-proxy render --help'",
	} {
		r := commandIn(t, work, []string{"PATH=" + folder}, strings.Fields(line)...)
		if r.code != exit.Usage || strings.Contains(r.stderr, "s3cret") {
			t.Errorf("%s: exit code %d\n%s", line, r.code, r.stderr)
		}
		oneLine(t, r.stderr, want+"\n")
	}
}

// A command that is quoted as a whole is one argument, and no program: that is said,
// without what may be secret in it. A program whose name has a space is started.
func TestQuotedCommand(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"npx", "my server"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	policy := filepath.Join(folder, "p.yaml")
	if err := os.WriteFile(policy, []byte(plainPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := []string{"PATH=" + folder}
	r := commandIn(t, folder, environment, "run", "--policy", policy, "--", "npx -y server --key s3cret")
	if r.code != exit.Usage || strings.Contains(r.stderr, "s3cret") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	oneLine(t, r.stderr, `the command after -- is one argument, "npx …"; take the quotes around it away`)
	if r := commandIn(t, folder, environment, "run", "--policy", policy, "--", "my server"); r.code != exit.OK {
		t.Errorf("a program with a space: exit code %d\n%s", r.code, r.stderr)
	}
}
