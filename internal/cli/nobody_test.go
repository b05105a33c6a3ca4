package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Where nobody is known, what hangs on who asks is told at the start and at a reload, with its lines; else nothing is.
func TestWhoAsksWhereNobodyIsKnown(t *testing.T) {
	t.Parallel()
	const asks = "version: 1\ninitial: a\nstates:\n  a:\n    tools:\n      work: {for: {scope: admin}}\n      rest:\n        when: who.subject == \"ann\"\n"
	u := mcptest.Stdio(t, "quiet")
	path := mcptest.WritePolicy(t, asks)
	s, p := mcptest.Dial(t, mcptest.RunStdio(t, path, u.Command()...)...)
	s.Initialize()
	p.Log().Await(t, "on stdio nobody has a subject, scopes or claims")
	saysAll(t, p, "policy.yaml:6, ", "policy.yaml:8\"", "--tokens")
	if err := os.WriteFile(path, []byte("# reloaded\n"+asks), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Log().Await(t, "policy.yaml:9\"")

	_, p = mcptest.Listen(t, append([]string{"--policy", path, "--"}, u.Command()...)...)
	p.Log().Await(t, "without authentication nobody has a subject")
	saysAll(t, p, "policy.yaml:9")

	url, p := mcptest.Listen(t, append([]string{"--policy", mcptest.WritePolicy(t, plainPolicy), "--"}, u.Command()...)...)
	s, _ = mcptest.DialWeb(t, url)
	s.Initialize() // by when all is said that is said at the start
	if log := p.Log().String(); strings.Contains(log, "nobody") {
		t.Errorf("nothing asks who, and yet:\n%s", log)
	}
}
