//go:build unix

package cli

import (
	"strings"
	"testing"
)

const byCommand = `version: 1
initial: a
states:
  a:
    tools:
      git: {by: comand, cases: {status: stay}}
      svn: {by: command, cases: {status: stay, comit: stay}}
      hg: {by: verbose, cases: {"true": stay}}
      cvs: {by: path, cases: {x: stay}}
      run_*: {by: task, cases: {build: stay, test: stay, lint: stay}}
    prompts:
      help: {by: topik, cases: {git: stay}}
`

// A binding split by what the server does not take is found, where it is named.
func TestCheckFindsArgumentsThatThereAreNot(t *testing.T) {
	const open, closed = `"properties":{"command":{"type":"string"}}`, `"properties":{"command":{"enum":["status","commit"]}},"additionalProperties":false`
	d := newDrift(t, byCommand)
	d.offer(`{"name":"git","inputSchema":{"type":"object",` + closed + `}},{"name":"svn","inputSchema":{"type":"object",` + closed + `}},` +
		`{"name":"hg","inputSchema":{"type":"object","properties":{"verbose":{"type":"boolean"}}}},{"name":"cvs","inputSchema":{"type":"object",` + open + `}},` +
		`{"name":"run_a","inputSchema":{"type":"object","properties":{"task":{"enum":["build"]}}}},{"name":"run_b","inputSchema":{"type":"object","properties":{"task":{"enum":["build","test"]}}}},{"name":"run_c","inputSchema":{"type":"object","additionalProperties":false}}`)
	r := command(t, nil, append([]string{"check", d.policy}, d.server...)...)
	for _, want := range []string{
		`:6:17: error: by: no argument "comand" is taken by the upstream's tool "git", so no call can be both allowed and valid; did you mean "command"? (unknown-argument)`,
		`:7:48: error: argument "command" cannot be "comit" in the upstream's tool "svn"; did you mean "commit"? (unknown-case)`,
		`:8:16: error: by: argument "verbose" is no text in the upstream's tool "hg", so no call can be both allowed and valid; name an argument that is a string (unknown-argument)`,
		`:9:17: warning: by: no argument "path" is declared by the upstream's tool "cvs", and a call without it is refused; there is "command" (unknown-argument)`,
		`:10:19: warning: by: no argument "task" is taken by the upstream's tool "run_c", so no call can be both allowed and valid (unknown-argument)`,
		`:10:58: error: argument "task" cannot be "lint" in the upstream's tools "run_a" and "run_b"; there is "build" and "test" (unknown-case)`,
	} {
		contains(t, r.stdout, want)
	}
	if n := strings.Count(r.stdout, "(unknown-argument)") + strings.Count(r.stdout, "(unknown-case)"); n != 6 || r.code != 1 {
		t.Errorf("%d findings, exit code %d\n%s", n, r.code, r.stdout)
	}
}
