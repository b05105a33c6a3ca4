package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// tag is the version of the release that the tests look at, and dist the folder that it is in.
const tag = "v9.8.7"

var dist string

// patience is how long a command may take.
const patience = 3 * time.Minute

func TestMain(m *testing.M) { os.Exit(withRelease(m.Run)) }

// withRelease makes a release, as `make release` does, for the tests to look at.
func withRelease(run func() int) int {
	folder, err := os.MkdirTemp("", "fsm-proxy-release-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	dist = filepath.Join(folder, "dist")
	if out, err := makeRelease(dist).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "make release: %v\n%s", err, out)
		return 1
	}
	return run()
}

func makeRelease(dist string, variables ...string) *exec.Cmd {
	cmd := exec.Command("make", append([]string{"-C", filepath.Join("..", ".."), "release", "VERSION=" + tag, "DIST=" + dist}, variables...)...)
	cmd.Env = environment() // `make test-release` hands down its own variables otherwise
	return cmd
}

// environment is that of the test, without what make hands down, and with more.
func environment(more ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "MAKE") && !strings.HasPrefix(e, "MFLAGS") {
			env = append(env, e)
		}
	}
	return append(env, more...)
}

// command is a command in a folder, with more environment, that does not outlive the test.
func command(t *testing.T, dir string, env []string, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, environment(env...)
	cmd.WaitDelay = time.Second // for what a launcher has started, and leaves behind with its pipes
	return cmd
}

// run runs a command to its good end, and returns what it printed.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, env, name, args...)
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return out
}

// try runs a command, and returns what it printed on both streams.
func try(t *testing.T, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	cmd := command(t, dir, env, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, path string, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// archive is the name of what the release has for one system.
func archive(goos, arch, ending string) string {
	return "fsm-proxy_" + tag + "_" + goos + "_" + arch + ending
}

// here is the archive for the machine that the test runs on, unpacked.
func here(t *testing.T) (program string) {
	t.Helper()
	folder := t.TempDir()
	run(t, folder, nil, "tar", "-xzf", filepath.Join(dist, archive(runtime.GOOS, runtime.GOARCH, ".tar.gz")))
	return filepath.Join(folder, archive(runtime.GOOS, runtime.GOARCH, ""), "fsm-proxy")
}

// versionHere is what the release's binary prints on the machine that the test runs on.
func versionHere() string {
	return fmt.Sprintf("fsm-proxy %s %s %s/%s\n", tag, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
