package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// benchPolicy is an automaton that is enforced on every call: echo stays in
// working, in which all tools of the canned upstream are listed.
const benchPolicy = `version: 1
name: bench
description: Work, review, apply; echo stays where it is.
initial: working
states:
  working:
    description: Everything is listed here.
    tools:
      echo:
      tool_*:
      tool_001: reviewing
  reviewing:
    description: A few tools, and the way back.
    tools:
      echo:
      tool_00*:
      tool_002: {on_success: applying, on_error: working}
      tool_003: working
  applying:
    description: The last step.
    tools:
      tool_004: {on_success: {to: done}, on_error: reviewing, on_unknown: reviewing}
      tool_005: stay
  done:
    terminal: true
`

// proxyBuild is a binary of fsm-proxy that is measured.
type proxyBuild struct {
	name, binary string
	policy       string   // file
	flags        []string // further flags of `run`
}

// subject runs the build on any path.
func (b proxyBuild) subject() subject {
	return subject{b.name, func(ctx context.Context, s site) (*running, error) { return b.start(ctx, s, nil) }}
}

func (b proxyBuild) start(ctx context.Context, s site, env []string, flags ...string) (*running, error) {
	argv := slices.Concat([]string{b.binary, "run", "--policy", b.policy, "--log-level", "warn"}, b.flags, s.eraFlags(), flags)
	if s.path.overStdio() {
		return startPiped(append(argv, s.wrapped("--upstream")...))
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	p, err := startProcess(slices.Concat(argv, []string{"--listen", addr}, s.wrapped("--upstream")), env...)
	if err != nil {
		return nil, err
	}
	return awaitRunning(ctx, p, addr)
}

// eraFlags have nothing added to modern results, and callers have a run each, as each
// has its session in the legacy era; over a stdio upstream, where that would cost a
// process each, they share one.
func (s site) eraFlags() []string {
	switch {
	case !s.modern:
		return nil
	case s.path.stdioUpstream():
		return []string{"--run-key", "modern=process", "--annotate", "off"}
	}
	return []string{"--run-key", "modern=header:" + runHeader, "--trusted-proxies", "127.0.0.1", "--annotate", "off"}
}

// buildProxy builds fsm-proxy as a release does, from the module that the working
// directory is in, into dir.
func buildProxy(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, fsmProxy)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "github.com/fsm-proxy/fsm-proxy/cmd/fsm-proxy")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building fsm-proxy: %w\n%s", err, out)
	}
	return binary, nil
}

func writePolicy(dir string) (string, error) {
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(benchPolicy), 0o600); err != nil {
		return "", fmt.Errorf("writing the policy: %w", err)
	}
	return file, nil
}
