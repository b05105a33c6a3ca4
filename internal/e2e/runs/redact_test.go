package runs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// What is taken out of arguments stands nowhere in the store, in no report or export of it, in no line of the log or the audit,
// and in no metric; the rest of them is there, and the digest is of the rest.
func TestRedactedIsKeptNowhere(t *testing.T) { redactedIsKeptNowhere(t, store) }

func redactedIsKeptNowhere(t *testing.T, store func(t *testing.T) string) {
	each(t, those(byHeader, "session"), func(t *testing.T, k key) {
		url, health, audit := store(t), mcptest.FreeAddress(t), filepath.Join(t.TempDir(), "audit.jsonl")
		guarded := strings.Replace(steps, "hold: after}", `hold: {when: host(args.password) == "a", on_success: after}}`, 1)
		h := counted(t, k, guarded, "--annotate", "meta", "--store", url, "--health", health, "--audit", audit, "--audit-arguments",
			"--log-level", "debug", "--record-arguments", "--record-redact", "/password", "--record-redact", "/deep/0/a,b")
		c := h.enter(k, "")
		const password, token, host = "a secret argument", "another secret", "user@secret"
		arguments := `"password":"` + password + `","deep":[{"a,b":"` + token + `","x":1}],"who":"me"`
		long := `"password":"` + password + `","long":"` + strings.Repeat("x", 70_000) + `"`
		for _, call := range [][2]string{{"ok", arguments}, {"ok", strings.Replace(arguments, password, "yet a secret argument", 1)},
			{"ok", long}, {"hold", strings.Replace(arguments, password, "http://"+host+"/", 1)}, {"elsewhere", arguments}, {"once", arguments}, {"ok", arguments}} {
			c.call(call[0], call[1])
		}
		entries := only(t, url, "stayed", 4)
		var told []recorded
		for _, e := range entries {
			if e.Type == "stayed" || e.Type == "begun" {
				told = append(told, e)
			}
		}
		for i, e := range told {
			switch {
			case i == 2:
				if e.Args != nil || e.Digest == "" || e.Args_bytes < 70_000 {
					t.Errorf("%s", e.text)
				}
			case !strings.Contains(string(e.Args), `"password":"[redacted]","deep":[{"a,b":"[redacted]","x":1}],"who":"me"`) || e.Digest != told[0].Digest || e.Args_bytes != 0:
				t.Errorf("%s", e.text)
			}
		}
		h.process.Log().Await(t, "code=guard_failed")
		written := textsOf(t, url, `"who":"me"`)
		written["the log"], written["the metrics"] = h.process.Log().String(), metrics(t, health)
		text, err := os.ReadFile(audit)
		if err != nil {
			t.Fatal(err)
		}
		if written["the audit"] = string(text); !strings.Contains(written["the audit"], `"who":"me"`) || len(told) != 5 {
			t.Fatalf("this test looks at nothing: %d", len(told))
		}
		for where, text := range written {
			for _, secret := range []string{"secret argument", token, host} {
				if strings.Contains(text, secret) {
					t.Errorf("%q stands in %s", secret, where)
				}
			}
		}
	})
}

// A policy that would keep in a register what is taken out ends the start, and is not put in force.
func TestRedactedIsSetNowhere(t *testing.T) {
	t.Parallel()
	const reads = "version: 1\nname: runs\ninitial: start\nregisters: {seen: text}\nstates:\n  start:\n    tools:\n      once: {on_success: {to: start, set: {seen: args.who.name}}}\n"
	policy := mcptest.WritePolicy(t, reads)
	_, url := mcptest.HTTP(t, server())
	out, err := exec.CommandContext(t.Context(), mcptest.Proxy(t), "run", "--policy", policy, "--store", store(t), "--record-redact", "/password", "--record-redact", "/who", "--upstream", url).CombinedOutput()
	if err == nil || !strings.Contains(string(out), policy+`:8:`) || !strings.Contains(string(out), `set reads "/who" of the arguments`) {
		t.Errorf("%v: %s", err, out)
	}
	for flags, want := range map[string]string{
		"--record-redact password --store sqlite:x.db": `"password" is no JSON pointer`,
		"--record-redact /password":                    "--record-redact needs --store, --audit-arguments or --approval-webhook",
		"--record-arguments":                           "--record-arguments",
	} {
		args := append([]string{"run", "--policy", policy, "--upstream", url}, strings.Fields(flags)...)
		out, err := exec.CommandContext(t.Context(), mcptest.Proxy(t), args...).CombinedOutput()
		if code, _ := err.(*exec.ExitError); code == nil || code.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", flags, err, out)
		}
	}
	file := mcptest.WritePolicy(t, steps)
	_, p := mcptest.Listen(t, "--policy", file, "--store", store(t), "--record-redact", "/who", "--reload-poll", "100ms", "--upstream", url)
	if err := os.WriteFile(file, []byte(reads), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Log().Await(t, "the policy was not reloaded")
	if log := p.Log().String(); !strings.Contains(log, `set reads`) || strings.Contains(log, "the policy was reloaded") {
		t.Error(log)
	}
}
