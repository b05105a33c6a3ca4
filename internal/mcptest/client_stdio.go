package mcptest

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Process is a running command whose standard error is kept.
type Process struct {
	*exec.Cmd
	t      testing.TB
	stdin  io.WriteCloser
	stderr *Log
	output sync.WaitGroup // the reader of standard output
	ended  chan struct{}
}

// Dial starts a command as a stdio server and returns a raw client of it. The process is ended, at the
// latest, when the test is.
func Dial(t testing.TB, argv ...string) (*Session, *Process) {
	t.Helper()
	return DialIn(t, nil, argv...)
}

// DialIn is Dial with variables, NAME=VALUE, added to the environment.
func DialIn(t testing.TB, env []string, argv ...string) (*Session, *Process) {
	t.Helper()
	return DialAs(t, func(c *exec.Cmd) { c.Env = append(os.Environ(), env...) }, argv...)
}

// DialAs is Dial of a command that prepared changes before it is started.
func DialAs(t testing.TB, prepared func(*exec.Cmd), argv ...string) (*Session, *Process) {
	t.Helper()
	s := newSession(t)
	p := prepare(t, argv)
	prepared(p.Cmd)
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatalf("starting %s: %v", argv[0], err)
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatalf("starting %s: %v", argv[0], err)
	}
	p.stdin = stdin
	p.begin(func() { eachLine(stdout, func(line []byte) { s.deliver(ParseMessage(line)) }) })
	s.line = p
	return s, p
}

// Start runs a command that is no stdio server: its standard output joins its standard error.
func Start(t testing.TB, env []string, argv ...string) *Process {
	t.Helper()
	return StartAs(t, func(c *exec.Cmd) { c.Env = append(os.Environ(), env...) }, argv...)
}

// StartAs is Start of a command that prepared changes before it is started.
func StartAs(t testing.TB, prepared func(*exec.Cmd), argv ...string) *Process {
	t.Helper()
	p := prepare(t, argv)
	prepared(p.Cmd)
	p.Stdout = p.stderr
	p.begin(func() {})
	return p
}

func prepare(t testing.TB, argv []string) *Process {
	log := &Log{changed: make(chan struct{})}
	p := &Process{Cmd: exec.Command(argv[0], argv[1:]...), t: t, stderr: log, ended: make(chan struct{})}
	p.Stderr = log
	return p
}

// begin starts the command, the reader of its output, and what waits for its end.
func (p *Process) begin(read func()) {
	p.t.Helper()
	if err := p.Cmd.Start(); err != nil {
		p.t.Fatalf("starting %s: %v", p.Path, err)
	}
	p.output.Go(read)
	go func() {
		p.output.Wait()
		_ = p.Cmd.Wait() // the exit code is in ProcessState
		p.stderr.end()
		close(p.ended)
	}()
	p.t.Cleanup(p.stop)
}

// eachLine calls take with each line that is not empty.
func eachLine(in io.Reader, take func(line []byte)) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSuffix(line, []byte("\n")); len(line) > 0 {
			take(line)
		}
		if err != nil {
			return
		}
	}
}

func (p *Process) send(text string) {
	// A process that ended meanwhile is noticed by the wait for its answer.
	_, _ = io.WriteString(p.stdin, text+"\n")
}

func (p *Process) open(text string) (leave func()) {
	p.send(text)
	return func() {
		p.send(Notification("notifications/cancelled", `{"requestId":`+string(ParseMessage([]byte(text)).ID)+`}`))
	}
}

// close ends standard input and waits for the process's own end. Not every real server ends by itself then.
func (p *Process) close() {
	p.stdin.Close()
	p.ExitCode()
}

// Log returns what the process writes to standard error.
func (p *Process) Log() *Log { return p.stderr }

// Ended is closed when the process has ended, and all that it wrote is in the log.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// ExitCode waits for the process's end and returns its exit code; -1 after a signal.
func (p *Process) ExitCode() int {
	p.t.Helper()
	timeout := time.After(Patience)
	select {
	case <-p.ended:
		return p.ProcessState.ExitCode()
	case <-timeout:
		p.t.Errorf("%s did not end within %v; it said:\n%s", p.Path, Patience, p.stderr)
		_ = p.Process.Kill()
		return -1
	}
}

// stop ends the process at the end of its test: politely, then not.
func (p *Process) stop() {
	if p.stdin != nil {
		p.stdin.Close()
	}
	_ = p.Process.Signal(os.Interrupt)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = p.Process.Kill()
		<-p.ended
	}
	if p.t.Failed() {
		p.t.Logf("%s said:\n%s", p.Path, p.stderr.tail())
	}
	if strings.Contains(p.stderr.String(), "WARNING: DATA RACE") {
		p.t.Errorf("%s has a data race:\n%s", p.Path, p.stderr)
	}
}

// Log is what a process wrote to standard error. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex // guards all below
	text    bytes.Buffer
	changed chan struct{}
	over    bool
}

// Write appends to the log.
func (l *Log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeLocked()
	return l.text.Write(text)
}

// String returns all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// From returns what was written beyond the first n bytes, a channel that closes when there is more to say, and
// whether the process has ended.
func (l *Log) From(n int) (text string, changed <-chan struct{}, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text.Bytes()[n:]), l.changed, l.over
}

// tail returns the last of what was written: enough to see why a test failed.
func (l *Log) tail() string {
	const enough = 4 << 10
	text := l.String()
	if len(text) <= enough {
		return text
	}
	return "… " + text[len(text)-enough:]
}

// Await waits until the log contains the text.
func (l *Log) Await(t testing.TB, text string) {
	t.Helper()
	timeout := time.After(Patience)
	for {
		l.mu.Lock()
		found, over, changed := strings.Contains(l.text.String(), text), l.over, l.changed
		l.mu.Unlock()
		if found {
			return
		}
		if over {
			t.Fatalf("the process ended without saying %q; it said:\n%s", text, l)
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("waited %v for %q in the log:\n%s", Patience, text, l)
		}
	}
}

func (l *Log) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.wakeLocked()
}

func (l *Log) wakeLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}
