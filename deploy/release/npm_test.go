package main

import (
	"bytes"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// npmEnvironment is an npm of its own: neither the user's settings nor their cache. What packages are asked of the registry.
func npmEnvironment(t *testing.T, registry string) []string {
	t.Helper()
	home := t.TempDir()
	return []string{
		"HOME=" + home, "npm_config_cache=" + filepath.Join(home, "cache"), "npm_config_userconfig=" + filepath.Join(home, "npmrc"),
		"npm_config_registry=" + registry, "npm_config_audit=false", "npm_config_fund=false", "npm_config_update_notifier=false",
		"npm_config_fetch_retries=0",
	}
}

// platform is the npm package of the machine that the test runs on.
func platform() string {
	os, cpu := nodeNames(target{os: runtime.GOOS, arch: runtime.GOARCH})
	return os + "-" + cpu
}

// npx in an empty folder fetches the launcher and one binary, that of this machine, and runs it.
func TestNpx(t *testing.T) {
	t.Parallel()
	registry := npmRegistry(t)
	folder, env := t.TempDir(), npmEnvironment(t, registry.URL+"/npm/")
	out, err := command(t, folder, env, "npx", "-y", "fsm-proxy", "version").Output()
	if err != nil || string(out) != versionHere() {
		t.Errorf("it prints %q: %v", out, err)
	}
	want := []string{"fsm-proxy-9.8.7.tgz", "fsm-proxy-" + platform() + "-9.8.7.tgz"}
	if got := registry.fetchedFiles(); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("it fetched %v", got)
	}
	if out := run(t, folder, env, "npx", "-y", "fsm-proxy", "demo", "--once"); !strings.Contains(out, "Crossroads") {
		t.Errorf("the demo prints\n%s", out)
	}
}

// What docs/install.md says for a release that no registry has: both files, given to npm.
func TestNpmInstallsFiles(t *testing.T) {
	t.Parallel()
	empty := serveRegistry(t, nil)
	folder, env := t.TempDir(), npmEnvironment(t, empty.URL+"/npm/")
	run(t, folder, env, "npm", "install", filepath.Join(dist, "fsm-proxy-9.8.7.tgz"), filepath.Join(dist, "fsm-proxy-"+platform()+"-9.8.7.tgz"))
	if out := run(t, folder, env, "npx", "fsm-proxy", "version"); out != versionHere() {
		t.Errorf("it prints %q", out)
	}
}

// Where npm left out the binary the launcher says which command brings it, and that command does.
func TestNpmOmitsOptional(t *testing.T) {
	t.Parallel()
	folder, env := t.TempDir(), npmEnvironment(t, npmRegistry(t).URL+"/npm/")
	t.Run("npm", func(t *testing.T) {
		run(t, folder, env, "npm", "install", "--omit=optional", "fsm-proxy")
		fix := omitted(t, folder, env, "npx", "fsm-proxy", "version")
		run(t, folder, env, fix[0], fix[1:]...)
		if out := run(t, folder, env, "npx", "fsm-proxy", "version"); out != versionHere() {
			t.Errorf("after %q it prints %q", fix, out)
		}
	})
	t.Run("npx", func(t *testing.T) {
		env := append(env, "npm_config_omit=optional", "npm_config_yes=true")
		fix := append(omitted(t, t.TempDir(), env, "npx", "fsm-proxy", "version"), "version")
		if out := run(t, t.TempDir(), env, fix[0], fix[1:]...); out != versionHere() {
			t.Errorf("%q prints %q", fix, out)
		}
	})
}

// omitted runs a launcher without a binary, and returns the command that it gives.
func omitted(t *testing.T, folder string, env []string, name string, args ...string) []string {
	t.Helper()
	out, err := try(t, folder, env, name, args...)
	_, fix, ok := strings.Cut(out, "To get it: ")
	if err == nil || !ok || !strings.Contains(out, "--omit=optional") {
		t.Fatalf("it says %q: %v", out, err)
	}
	line, _, _ := strings.Cut(fix, "\n")
	return strings.Fields(line)
}

// On a system that no package is for the launcher says which there are.
func TestNpmUnknownSystem(t *testing.T) {
	t.Parallel()
	folder, env := t.TempDir(), npmEnvironment(t, npmRegistry(t).URL+"/npm/")
	run(t, folder, env, "npm", "install", "fsm-proxy")
	other := write(t, filepath.Join(folder, "other.cjs"), `Object.defineProperty(process, "platform", { value: "aix" });`)
	out, err := try(t, folder, append(env, "NODE_OPTIONS=--require="+other), "node", "node_modules/fsm-proxy/bin/fsm-proxy.js", "version")
	if err == nil || !strings.Contains(out, "no package for aix on ") || !strings.Contains(out, "@fsm-proxy/linux-arm64") || !strings.Contains(out, "go install ") {
		t.Errorf("it says %q: %v", out, err)
	}
}

// installed is a folder with the npm packages in it, and the environment for their npx.
func installed(t *testing.T) (folder string, env []string) {
	t.Helper()
	folder, env = t.TempDir(), npmEnvironment(t, npmRegistry(t).URL+"/npm/")
	run(t, folder, env, "npm", "install", "fsm-proxy")
	return folder, env
}

// What the proxy writes and reads through npx is what it writes and reads by itself, to the byte, and so is its exit code.
func TestNpxPassesBytes(t *testing.T) {
	t.Parallel()
	folder, env := installed(t)
	proxy := []string{"run", "--policy", absolute(t, "testdata/policy.yaml"), "--log-level", "error", "--", "node", absolute(t, "testdata/server.mjs")}
	var in bytes.Buffer
	in.WriteString(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n")
	in.WriteString(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n")
	for i, text := range []string{"plain", "ünïcödé 漢字 😀 \\u0000 \\u2028", strings.Repeat("long ", 1<<18)} {
		in.WriteString(`{"jsonrpc":"2.0","id":` + string(rune('1'+i)) + `,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + text + `"}}}` + "\n")
	}
	direct := command(t, folder, nil, here(t), proxy...)
	want := talk(t, direct, in.Bytes(), 4)
	npx := command(t, folder, env, "npx", append([]string{"fsm-proxy"}, proxy...)...)
	if got := talk(t, npx, in.Bytes(), 4); got != want {
		t.Errorf("%d bytes, not %d", len(got), len(want))
	}
	for args, code := range map[string]int{"version": 0, "check nothing.yaml": 1, "no-such-command": 2} {
		cmd := command(t, folder, env, "npx", append([]string{"fsm-proxy"}, strings.Fields(args)...)...)
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%s ends with %d, not %d", args, got, code)
		}
	}
}
