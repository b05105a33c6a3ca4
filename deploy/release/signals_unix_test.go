//go:build unix

package main

import (
	"bufio"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wrapped is a proxy that a launcher runs: a process group, with a call under way.
type wrapped struct {
	*exec.Cmd
	t      *testing.T
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *bufio.Reader
	gate   string // the file that the call waits for
}

// wrap starts a launcher, given the words in front of the proxy's own, and returns when a call has reached the server.
func wrap(t *testing.T, folder string, env []string, launcher ...string) *wrapped {
	t.Helper()
	args := append(launcher[1:], "run", "--policy", absolute(t, "testdata/policy.yaml"), "--", "node", absolute(t, "testdata/server.mjs"))
	w := &wrapped{Cmd: command(t, folder, env, launcher[0], args...), t: t, gate: filepath.Join(t.TempDir(), "gate")}
	w.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w.Cancel = func() error { return syscall.Kill(-w.Process.Pid, syscall.SIGKILL) }
	var pipes [3]error
	var stdout, stderr io.Reader
	w.stdin, pipes[0] = w.StdinPipe()
	stdout, pipes[1] = w.StdoutPipe()
	stderr, pipes[2] = w.StderrPipe()
	if err := errors.Join(append(pipes[:], w.Start())...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-w.Process.Pid, syscall.SIGKILL) }) // what is left of the group
	w.stdout, w.stderr = bufio.NewReader(stdout), bufio.NewReader(stderr)
	w.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	w.read(w.stdout, `"id":0`)
	w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold","arguments":{"file":"` + w.gate + `"}}}`)
	w.read(w.stderr, "holding")
	return w
}

func (w *wrapped) send(line string) {
	w.t.Helper()
	if _, err := io.WriteString(w.stdin, line+"\n"); err != nil {
		w.t.Fatal(err)
	}
}

// read reads up to a line that has a text in it.
func (w *wrapped) read(from *bufio.Reader, text string) string {
	w.t.Helper()
	var read strings.Builder
	for {
		line, err := from.ReadString('\n')
		read.WriteString(line)
		if strings.Contains(line, text) {
			return line
		}
		if err != nil {
			w.t.Fatalf("no %q in:\n%s", text, read.String())
		}
	}
}

// gone waits until no process of the group is left.
func (w *wrapped) gone() {
	w.t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for !errors.Is(syscall.Kill(-w.Process.Pid, 0), syscall.ESRCH) {
		select {
		case <-again.C:
		case <-late.C:
			w.t.Error("processes are left")
			return
		}
	}
}

// SIGTERM to the launcher, as clients send it, and Ctrl-C, which comes to all at once, end the proxy in order: the call
// under way is answered, and no process is left.
func TestLaunchersPassSignals(t *testing.T) {
	t.Parallel()
	folder, npm := installed(t)
	launchers := map[string]struct {
		env []string
		by  []string
	}{
		"npx":      {npm, []string{"npx", "fsm-proxy"}},
		"launcher": {nil, []string{filepath.Join(folder, "node_modules", ".bin", "fsm-proxy")}}, // as npm install --global has it
		"uvx":      {uvEnvironment(t), []string{tool(t, "uvx"), "--from", wheelHere(t), "fsm-proxy"}},
	}
	for name, launcher := range launchers {
		for end, signal := range map[string]func(*wrapped) error{
			"SIGTERM": func(w *wrapped) error { return w.Process.Signal(syscall.SIGTERM) },
			"Ctrl-C":  func(w *wrapped) error { return syscall.Kill(-w.Process.Pid, syscall.SIGINT) },
		} {
			t.Run(name+" "+end, func(t *testing.T) {
				w := wrap(t, folder, launcher.env, launcher.by...)
				if err := signal(w); err != nil {
					t.Fatal(err)
				}
				w.read(w.stderr, "ending")
				write(t, w.gate, "")
				if answer := w.read(w.stdout, `"id":1`); !strings.Contains(answer, "the answer") {
					t.Errorf("answered %s", answer)
				}
				w.read(w.stderr, "drained")
				if err := w.Wait(); err != nil && name != "npx" { // which says that it was signalled
					t.Error(err)
				}
				w.gone()
			})
		}
	}
}
