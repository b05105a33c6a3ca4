//go:build unix

package cli

import (
	"os"
	"strings"
	"testing"
)

// check says what run would refuse for want of a lock, or since tools are not what was
// locked.
func TestCheckReadsTheLock(t *testing.T) {
	d := newDrift(t, lockedPolicy)
	finds := func(code int, args []string, want ...string) {
		t.Helper()
		r := command(t, nil, append([]string{"check", d.policy}, args...)...)
		got := strings.Split(strings.TrimSpace(strings.ReplaceAll(r.stdout, d.policy, "P")), "\n")
		if r.code != code || strings.Join(got[:len(got)-1], "\n") != strings.Join(want, "\n") {
			t.Errorf("%v: exit code %d, want %d\n%s%s\nwant %s", args, r.code, code, r.stdout, r.stderr, strings.Join(want, "\n"))
		}
	}
	const stays = "P: note: 1 implicit stay: nothing is said of some outcome, so the state stays; --format json has each (implicit-stay)"
	const none = `P:3:1: error: there is no lock file L, which 'pin: refuse' compares tools with; write it by 'fsm-proxy lock POLICY' and the server, or name it by --lock (no-lock)`
	missing := strings.NewReplacer("L,", d.lock()+",", "POLICY", "P").Replace(none)
	finds(1, nil, strings.ReplaceAll(missing, d.policy, "P"), stays)

	d.run(0)
	finds(0, nil, stays)
	server := []string{"--color", "never"}
	server = append(server, d.server...)
	handle := func(column, tools string) string {
		return "P:4:" + column + `: note: ` + tools + ` are out of reach under the run key "handle", the default for modern clients over HTTP: each has no inputSchema that is an object; choose modern=principal or modern=path (no-handle)`
	}
	finds(0, server, handle("31", `"touch" and "read_a"`), stays)

	d.offer(strings.Replace(evilTools, `{"name":"touch"},`, "", 1) + `,{"name":"read_b"}`)
	finds(1, server,
		`P:4:22: error: "apply" is refused by "pin: refuse": its description is not what was locked; look at what it is now, and then run 'fsm-proxy lock' (definition-changed)`,
		`P:4:31: error: the upstream lists no tool "touch"; it lists "apply", "read_a" and "read_b" (unknown-name)`,
		`P:4:40: error: "read_b" is refused by "pin: refuse": it is not in the lock file; look at it, and then run 'fsm-proxy lock' (not-locked)`,
		handle("40", `"read_a" and "read_b"`), stays)

	replace(t, d.policy, strings.Replace(lockedPolicy, "apply: ", "apply: , other: ", 1))
	finds(1, nil, `P:4:31: error: "other" is refused by "pin: refuse": it is not in the lock file; look at it, and then run 'fsm-proxy lock' (not-locked)`, stays)
	replace(t, d.policy, strings.Replace(lockedPolicy, "refuse", "warn", 1))
	finds(0, nil, stays)
	if err := os.Rename(d.lock(), d.lock()+".elsewhere"); err != nil {
		t.Fatal(err)
	}
	finds(0, []string{"--lock", d.lock() + ".elsewhere"}, stays)
	finds(0, nil, strings.ReplaceAll(strings.NewReplacer("error", "warning", "refuse", "warn").Replace(missing), d.policy, "P"), stays)
	replace(t, d.lock(), "version: 1\ntools: [a]\n")
	lock := strings.ReplaceAll(d.lock(), d.policy, "P")
	finds(1, nil, lock+":2:8: error: tools: wants a mapping of tools to their digests, not a list (type)",
		"P:3:1: error: the lock file "+lock+" has errors; run 'fsm-proxy lock' again (no-lock)", stays)
}

// The lock of the old policy is no matter.
func TestCheckAgainstReadsTheNewLock(t *testing.T) {
	d := newDrift(t, lockedPolicy)
	d.run(0)
	old := write(t, "old.yaml", lockedPolicy)
	if r := command(t, nil, "check", "--against", old, d.policy); r.code != 0 {
		t.Errorf("exit code %d\n%s", r.code, r.stdout)
	}
	if r := command(t, nil, "check", "--against", d.policy, old); r.code != 1 || !strings.Contains(r.stdout, "(no-lock)") {
		t.Errorf("exit code %d\n%s", r.code, r.stdout)
	}
}
