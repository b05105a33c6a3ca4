//go:build unix

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
)

// reloaded is a configuration that has been read, what of it was applied since,
// and the log.
type reloaded struct {
	*configReload
	applied []string
	out     bytes.Buffer
}

func reloading(t *testing.T, text string, fixed ...string) *reloaded {
	t.Helper()
	said, findings := parseConfig(watch.File{Path: "/etc/f.yaml", Content: []byte("version: 1\n" + text)})
	if said == nil {
		t.Fatal(findings)
	}
	r := &reloaded{}
	file := &configFile{said: said, fixed: map[string]bool{}}
	for _, flag := range fixed {
		file.fixed[flag] = true
	}
	live := liveFlags{"surface": func(text string) error {
		if text == "static" {
			return errors.New("not today")
		}
		r.applied = append(r.applied, text)
		return nil
	}}
	r.configReload = &configReload{file: file, inForce: said, live: live, told: func([]string) {}, log: hclog.New(&hclog.LoggerOptions{Output: &r.out})}
	return r
}

func (r *reloaded) becomes(text string) (log string) {
	r.out.Reset()
	r.take(watch.File{Path: "/etc/f.yaml", Content: []byte("version: 1\n" + text)})
	return r.out.String()
}

// A live key is applied once, and falls back to what is built in when it goes.
func TestLiveKeys(t *testing.T) {
	r := reloading(t, "surface: dynamic\n")
	contains(t, r.becomes("surface: auto\nhint: false\n"), `applied=surface`)
	r.becomes("surface: auto\nhint: true\n")
	r.becomes("surface: dynamic\n")
	contains(t, r.becomes("log: {level: info}\n"), `applied=surface`)
	if want := []string{"auto", "dynamic", "auto"}; !slices.Equal(r.applied, want) {
		t.Errorf("applied %q, want %q", r.applied, want)
	}
	contains(t, r.becomes("surface: static\n"), "not today")
}

// What waits for the next start is named until it says again what it said at the
// start; values stand in no log.
func TestWaitingKeys(t *testing.T) {
	r := reloading(t, "upstream: {url: 'http://x/', headers: {A: hunter1}}\nhint: true\n")
	log := r.becomes("upstream: {url: 'http://x/', headers: {A: hunter2}}\nlimits: {depth: 3}\n")
	for _, word := range []string{"take effect at the next start", `keys="upstream.headers, limits.depth, hint"`, "applied=nothing"} {
		contains(t, log, word)
	}
	if strings.Contains(log, "hunter") {
		t.Errorf("a secret is in the log: %s", log)
	}
	log = r.becomes("hint: true\nupstream: {headers: {A: hunter1}, url: 'http://x/'}\n")
	if strings.Contains(log, "next start") {
		t.Errorf("something waits still: %s", log)
	}
}

// What the command line or the environment has set is not changed, and what the
// command line replaces is not spoken of.
func TestOverriddenKeys(t *testing.T) {
	r := reloading(t, "surface: dynamic\n", "surface", "no-hint")
	log := r.becomes("surface: auto\nhint: false\n")
	contains(t, log, `overridden by the command line`)
	contains(t, log, `keys="surface, hint"`)
	if len(r.applied) > 0 || strings.Contains(log, "next start") {
		t.Errorf("applied %q: %s", r.applied, log)
	}
	r.file.cut = []string{"upstream"}
	if log := r.becomes("surface: auto\nhint: false\nupstream: {command: [cat]}\n"); strings.Contains(log, "next start") {
		t.Errorf("what is replaced waits: %s", log)
	}
}

func TestBadConfigurationChangesNothing(t *testing.T) {
	r := reloading(t, "surface: dynamic\n")
	log := r.becomes("surface: auto\nlimits: {dept: 3}\nhint: 1\n")
	for _, word := range []string{"the last good one stays in force", "/etc/f.yaml:3:10: error: ", "did you mean", "/etc/f.yaml:4:7: error: "} {
		contains(t, log, word)
	}
	r.out.Reset()
	r.take(watch.File{Path: "/etc/f.yaml", Err: fmt.Errorf("gone")})
	contains(t, r.out.String(), "gone")
	if len(r.applied) > 0 {
		t.Errorf("applied %q", r.applied)
	}
}

// The real thing: a saved file is noticed, and the log's level changes at once.
func TestConfigurationIsFollowed(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "quiet")
	server := "policy: p.yaml\nreload: {debounce: 5ms}\nupstream: {command: " + words(u.Command()) + "}\n"
	path := configured(t, strings.TrimPrefix(server, "policy: p.yaml\n"))
	s, p := mcptest.Dial(t, mcptest.Proxy(t), "run", "--config", path)
	s.Initialize()
	replace(t, path, "version: 1\n"+server+"log: {level: debug}\nsurface: static\n")
	p.Log().Await(t, "take effect at the next start")
	p.Log().Await(t, "applied=log.level")
	p.Log().Await(t, "keys=surface")
	replace(t, path, "version: 2\n")
	p.Log().Await(t, "the last good one stays in force")
	contains(t, string(s.Tool("work", "").Raw), `"result"`)
}
