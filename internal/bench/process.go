package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is one child of the harness. Its standard input stays open until
// stop, and its standard output can be read by the parent.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *tail
	tree   bool // what it costs includes its children (nginx's workers)
}

// startProcess starts argv, with env added to the environment. Stop it.
func startProcess(argv []string, env ...string) (*process, error) {
	childIn, stdin, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	defer childIn.Close()
	stdout, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a pipe: %w", err), stdin.Close())
	}
	defer childOut.Close()
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), stdin: stdin, stdout: stdout, stderr: &tail{}}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = childIn, childOut, p.stderr
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.WaitDelay = 3 * time.Second // a grandchild may hold standard error
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", argv[0], err), stdin.Close(), stdout.Close())
	}
	return p, nil
}

// stop closes the child's input, asks it to end, and kills it after 3 s.
func (p *process) stop() {
	p.stdin.Close()
	p.cmd.Process.Signal(os.Interrupt) // it may have ended, or the system may lack it: Kill follows
	kill := time.AfterFunc(3*time.Second, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	p.cmd.Wait() // how a child ends when told to is of no interest
	p.stdout.Close()
}

// cpu is a meter of the process, with its children if it is a tree.
func (p *process) cpu() (time.Duration, bool) { return processCPU(p.cmd.Process.Pid, p.tree) }

// addressLine is what a role that listens prints first on standard output.
const addressLine = "listening "

// address reads where a role of this command listens.
func (p *process) address() (string, error) {
	p.stdout.SetReadDeadline(time.Now().Add(10 * time.Second)) // pipes take one; where not, it stays unlimited
	line, err := bufio.NewReader(p.stdout).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), addressLine)
	if err != nil || !ok {
		return "", fmt.Errorf("starting %v: %q: %w\n%s", p.cmd.Args, line, err, p.stderr)
	}
	return addr, nil
}

// awaitListener waits until addr takes a connection.
func awaitListener(ctx context.Context, p *process, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to listen: %w\n%s", p.cmd.Path, err, p.stderr)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// freeAddress is a loopback address that was free just now, for servers that
// cannot choose one themselves and tell.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// tail keeps the last tailSize bytes written to it, for error messages. It is
// safe for concurrent use.
type tail struct {
	mu   sync.Mutex // guards kept
	kept []byte
}

const tailSize = 2000

var _ io.Writer = (*tail)(nil)

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailSize; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.kept))
}
