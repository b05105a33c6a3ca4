package reload

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// verdict fails the test unless a call ends so; an empty code is an allowed call.
func (c *client) verdict(tool, code string) {
	c.t.Helper()
	if d, _ := c.call(tool); d.code != code {
		c.t.Errorf("%s: %q, want %q", tool, d.code, code)
	}
}

// in fails the test unless the run is in the state.
func (c *client) in(state string) {
	c.t.Helper()
	if d, _ := c.call("nowhere"); d.state != state {
		c.t.Errorf("the run is in %q, want %q", d.state, state)
	}
}

// still fails the test unless the last version written decides.
func (l *load) still(c *client) {
	l.t.Helper()
	c.verdict(mark(l.version), "")
	c.verdict(mark(l.version+1), "unknown_action")
}

// A run whose state is gone is kept, and from the moment at which the log says that the policy is in force it may call
// nothing that this does not bind somewhere.
func TestTighteningUnderAStrandedRun(t *testing.T) {
	t.Parallel()
	e := &editor{t: t, path: mcptest.WritePolicy(t, version(0))}
	l := begin(t, 0, e.path)
	l.server.release()
	c := l.one()
	c.verdict("go", "")
	c.in("even")
	c.verdict("always", "")
	tight := `{version: 1, initial: home, states: {home: {tools: {go: away}}, away: {tools: {back: home}}}}`
	l.history.about(1, tight)
	e.byRename(tight)
	l.history.awaitVersion(t, 1)
	for _, tool := range []string{"always", mark(0)} {
		c.verdict(tool, "unknown_action")
	}
	c.awaitTools([]string{"back"})
	c.in("even")
	c.verdict("back", "") // by its old policy, to a state that the new one has
	c.awaitTools([]string{"go"})
	c.verdict("go", "")
	c.in("away")
}

// The folder is removed, is away for a while, and is made again.
func TestFolderComesAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "policies")
	must(t, os.Mkdir(dir, 0o755))
	e := &editor{t: t, path: filepath.Join(dir, "policy.yaml")}
	e.inPlace(version(0))
	l := begin(t, 0, e.path)
	c := l.one()
	for range 3 {
		l.bad("gone with its folder", func() { must(t, os.RemoveAll(dir)) })
		l.still(c)
		l.good(func(content string) { must(t, os.Mkdir(dir, 0o755)); e.inPlace(content) })
		l.arrived()
		l.still(c)
	}
}

// A folder holds two policies for a moment: which one is meant, nobody can say.
func TestTwoPoliciesForAMoment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := &editor{t: t, path: filepath.Join(dir, "one.yaml")}, &editor{t: t, path: filepath.Join(dir, "two.yml")}
	one.inPlace(version(0))
	l := begin(t, 0, dir)
	c := l.one()
	for range 3 {
		l.bad("one of two", func() { l.good(two.inPlace) })
		l.version--
		l.still(c)
		l.version++
		must(t, os.Remove(one.path))
		l.arrived()
		l.still(c)
		one, two = two, one
	}
}

// The times of a file tell nothing: of the next year, of 1970, or the same as before.
func TestFilesWithStrangeTimes(t *testing.T) {
	t.Parallel()
	e := &editor{t: t, path: mcptest.WritePolicy(t, version(0))}
	l := begin(t, 0, e.path)
	c := l.one()
	for _, at := range []time.Time{time.Now().Add(8760 * time.Hour), time.Unix(0, 0), time.Unix(0, 0), time.Now().Add(30 * time.Second)} {
		l.good(func(content string) {
			e.inPlace(content)
			must(t, os.Chtimes(e.path, at, at))
		})
		l.arrived()
		l.still(c)
	}
}

// What decides is who was asked last, not who answers last: a policy that is written while another is being put in
// force comes after it.
func TestManySavesInARow(t *testing.T) {
	t.Parallel()
	e := &editor{t: t, path: mcptest.WritePolicy(t, version(0))}
	l := begin(t, 2, e.path)
	for range 400 {
		l.good(e.byRename)
	}
	for range 400 {
		l.good(e.inPlace)
	}
	l.settle()
}

// More errors than anybody reads do not fill the log.
func TestManyErrors(t *testing.T) {
	t.Parallel()
	e := &editor{t: t, path: mcptest.WritePolicy(t, version(0))}
	l := begin(t, 0, e.path)
	c := l.one()
	l.bad("full of errors", func() { e.byRename("version: 1\ninitial: s\nstates:\n" + strings.Repeat("  s:\n", 20_000)) })
	l.still(c)
	l.good(e.byRename)
	l.arrived()
	if n := l.history.refused(); n > 1001 {
		t.Errorf("%d lines in the log", n)
	}
}
