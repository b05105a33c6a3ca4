// Package process runs a command as a child process: the lines of its standard input and output, its standard
// error in the log, its environment, and its end, with that of all it has started. It knows nothing of what the
// lines say.
package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/stdio"
)

const (
	// MaxInput bounds what waits for a child that does not read its input: what is offered as long as half of it
	// is free, all else up to the whole.
	MaxInput = 32 << 20
	// drainTime is how long the pipes of a dead child are read on, where a process that left its group still holds
	// them.
	drainTime = time.Second
	// reapTime bounds the wait for a child that was killed.
	reapTime = 5 * time.Second
)

// Config says what is run.
type Config struct {
	// Command is the path of a program, as [LookPath] returns it, and its arguments.
	Command []string
	// Env is the child's complete environment: see [Environ].
	Env []string
	// Dir is the child's working directory. Empty: that of this process.
	Dir string
	// MaxLine bounds a line of the child's standard output, in bytes.
	MaxLine int
	// Cork gathers what is written to the child. nil: nothing is gathered.
	Cork *stdio.Cork
	// Log takes the child's standard error. Unlogged counts the lines that are too many for it.
	Log      hclog.Logger
	Unlogged *atomic.Uint64
	// Running keeps the child while it runs.
	Running *Set
}

// Handler takes what comes from a child. All but Exited is called by one goroutine.
type Handler interface {
	// Line takes a line of the child's standard output, which it may keep.
	Line([]byte)
	// TooLong is told of a line that was skipped, since it is longer than [Config.MaxLine].
	TooLong(error)
	// OutputClosed is told that the child has closed its standard output and lives on.
	OutputClosed()
	// Exited is told that the child has ended by itself or by a signal, when all that it has written was read. err is
	// nil where its exit status is 0.
	Exited(err error)
}

// Process is a child process. Its standard error is logged line by line.
type Process struct {
	// Input takes lines for the child's standard input; nil as long as it was not started.
	Input *stdio.Writer

	cfg     Config
	handler Handler
	cmd     *exec.Cmd
	pipes   [3]*os.File // this process's ends of stdin, stdout, stderr
	stderr  stderrLog
	read    chan struct{} // closes when stdout was read to its end
	exited  chan struct{} // closes when the child was reaped, its group killed
}

// New returns a process that is not started yet.
func New(cfg Config, h Handler) *Process {
	return &Process{
		cfg: cfg, handler: h,
		cmd:    &exec.Cmd{Path: cfg.Command[0], Args: cfg.Command, Dir: cfg.Dir, Env: append([]string{}, cfg.Env...), SysProcAttr: groupAttr()},
		stderr: stderrLog{log: cfg.Log, dropped: cfg.Unlogged, done: make(chan struct{})},
		read:   make(chan struct{}), exited: make(chan struct{}),
	}
}

// Start starts the child. One that was started must be closed.
func (p *Process) Start() error {
	theirs, err := p.makePipes()
	if err != nil {
		return err
	}
	started := make(chan error)
	go p.supervise(started)
	err = <-started
	closeAll(theirs[:])
	if err != nil {
		closeAll(p.pipes[:])
		return err
	}
	p.attach()
	return nil
}

// makePipes makes the child's standard files. They are plain files, so that nothing but the child itself holds up
// [exec.Cmd.Wait].
func (p *Process) makePipes() (theirs [3]*os.File, err error) {
	for i := range theirs {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(theirs[:])
			closeAll(p.pipes[:])
			return theirs, err
		}
		theirs[i], p.pipes[i] = w, r
		if i == 0 {
			theirs[i], p.pipes[i] = r, w
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	return theirs, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// attach reads and writes the pipes.
func (p *Process) attach() {
	p.Input = stdio.NewWriter(p.pipes[0], MaxInput)
	p.Input.Join(p.cfg.Cork)
	go p.readOutput()
	go p.stderr.run(p.pipes[2])
}

// supervise starts the child, waits for its death, kills what is left of its group, and tells the handler when all
// that the child has written was read. It keeps its thread: on Linux the child is killed when the thread that
// started it ends, which without the lock could be before this process does.
func (p *Process) supervise(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	if err == nil {
		p.cfg.Running.add(p)
	}
	started <- err
	if err != nil {
		return
	}
	awaitExit(p.cmd.Process.Pid)
	err = p.cmd.Wait()
	p.cfg.Running.remove(p)
	killRest(p.cmd.Process.Pid)
	close(p.exited)
	timer := time.AfterFunc(drainTime, func() { closeAll(p.pipes[1:]) })
	defer timer.Stop()
	<-p.read
	<-p.stderr.done
	p.handler.Exited(err)
}

// readOutput reads the child's standard output to its end.
func (p *Process) readOutput() {
	defer close(p.read)
	lines := stdio.NewReader(p.pipes[1], p.cfg.MaxLine)
	lines.Join(p.cfg.Cork)
	defer lines.Release()
	for {
		line, err := lines.Next()
		switch {
		case errors.Is(err, stdio.ErrTooLong):
			p.handler.TooLong(err)
		case err == nil:
			p.handler.Line(line)
		default:
			if !p.exitedWithin(drainTime) { // its exit says more
				p.handler.OutputClosed()
			}
			return
		}
	}
}

// Pid is the number of a child that was started.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// LastError is what the child wrote last to its standard error that tells of an error, else the last line.
func (p *Process) LastError() string { return p.stderr.last().String() }

// Close ends the child and waits for that: its input ends, after first its group is asked to terminate (SIGTERM),
// and after grace it is killed. It reports false where the child has not ended all the same.
func (p *Process) Close(first, grace time.Duration) (ended bool) {
	if p.Input == nil {
		return true // it never ran
	}
	input := make(chan struct{})
	go func() {
		defer close(input)
		p.Input.Close()
		_ = p.pipes[0].Close()
	}()
	ended = p.end(first, grace)
	<-input
	<-p.read
	<-p.stderr.done
	closeAll(p.pipes[1:])
	return ended
}

func (p *Process) end(first, grace time.Duration) bool {
	if p.exitedWithin(first) {
		return true
	}
	terminate(p.cmd.Process.Pid)
	if p.exitedWithin(grace) {
		return true
	}
	kill(p.cmd.Process)
	if p.exitedWithin(reapTime) {
		return true
	}
	closeAll(p.pipes[1:]) // who reads them would go on, and Close waits for that
	return false
}

func (p *Process) exitedWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// Set is the children that run. The zero value is ready to use.
type Set struct {
	mu      sync.Mutex // guards what follows
	running map[*Process]struct{}
	closed  bool
}

// add keeps a child. One that begins after the end is killed: whoever ended the others could not see it.
func (s *Set) add(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		s.running = make(map[*Process]struct{})
	}
	s.running[p] = struct{}{}
	if s.closed {
		kill(p.cmd.Process)
	}
}

func (s *Set) remove(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, p)
}

// Len is how many children run.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// LastLine is the last line that any of the children has written to its standard error, "" for none.
func (s *Set) LastLine() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.running {
		return p.stderr.last().line
	}
	return ""
}

// Close has children that are started from now on killed at once.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Kill is Close, and ends all children at once, with their process groups. It waits for nothing.
func (s *Set) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for p := range s.running {
		kill(p.cmd.Process)
	}
}

// LookPath returns the absolute path of a program; a relative path is one in the child's directory. Its error says
// neither name nor path.
func LookPath(dir, name string) (string, error) {
	if filepath.Base(name) != name {
		name = Placed(dir, name)
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return filepath.Abs(path)
	}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*os.PathError](err); ok {
		err = e.Err
	}
	return "", err
}

// Placed returns the path that is tried for a program that is named by its path.
func Placed(dir, name string) string {
	if dir != "" && !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	if path, err := filepath.Abs(name); err == nil {
		return path
	}
	return name
}
